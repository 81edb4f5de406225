// SPDX-License-Identifier: Apache-2.0
// A server with a lease socket, and tensors in memory that clients share with it.
#ifndef PHASOR_TESTS_E2E_SHARED_SERVER_H_
#define PHASOR_TESTS_E2E_SHARED_SERVER_H_

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/tensor_desc.h"
#include "tests/e2e/client_server.h"

namespace phasor {

class ClientSharedTest : public ClientServerTest {
 protected:
  void SetUp() override { Start(Options()); }

  static SharedMemory Shared(const Client& client, int64_t bytes) {
    auto memory = client.AllocateShared(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(memory->shared());
    EXPECT_EQ(memory->size(), bytes);
    return *std::move(memory);
  }
  // Numbers of any type: bits of floats in [1, 2).
  static void Fill(std::byte* data, int64_t bytes, Dtype dtype) {
    for (int64_t i = 0; i < bytes / SizeOf(dtype); ++i) {
      const uint64_t fraction = static_cast<uint64_t>(i * 2654435761u);
      uint64_t bits = 0x3FF0000000000000 | (fraction << 20 & 0xFFFFFFFFFFFFF);
      if (dtype == Dtype::kFloat32) bits = 0x3F800000 | (fraction & 0x7FFFFF);
      if (dtype == Dtype::kBFloat16) bits = 0x3F80 | (fraction & 0x7F);
      if (dtype == Dtype::kFloat16) bits = 0x3C00 | (fraction & 0x3FF);
      std::memcpy(data + i * SizeOf(dtype), &bits, static_cast<size_t>(SizeOf(dtype)));
    }
  }
  static MutableTensorView ViewOf(std::byte* data, Dtype dtype, std::vector<int64_t> shape,
                                  std::vector<int64_t> strides = {}) {
    const TensorDesc desc{dtype, std::move(shape), std::move(strides)};
    return {desc, data, *SpannedBytes(desc, "x")};
  }
};

}  // namespace phasor

#endif  // PHASOR_TESTS_E2E_SHARED_SERVER_H_
