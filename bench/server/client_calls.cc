// SPDX-License-Identifier: Apache-2.0
// Connects the client library and builds its rotations for benchmark cases.
#include "bench/server/client_calls.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "bench/harness.h"

namespace phasor::bench {

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Client ConnectTo(const std::string& target, int inproc_threads, int64_t staging_bytes) {
  auto client = Client::Connect(target, {.timeout = absl::Minutes(5),
                                         .staging_bytes = staging_bytes,
                                         .inproc_threads = inproc_threads});
  if (!client.ok()) Die(client.status().ToString());
  return *std::move(client);
}

RopeCall CallOf(const RopeCase& test_case, std::byte* data) {
  const TensorDesc tensor{
      test_case.dtype, {test_case.tokens(), test_case.q_heads, test_case.head_dim}, {}};
  return {.spec = {.preset = test_case.preset},
          .positions = IntegerRange{.count = test_case.tokens()},
          .tensors = {MutableTensorView{tensor, data, test_case.q_bytes()}}};
}

void Rotate(const Client& client, const RopeCall& call) {
  if (const auto info = client.ApplyRoPE(call); !info.ok()) Die(info.status().ToString());
}

}  // namespace phasor::bench
