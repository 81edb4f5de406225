// SPDX-License-Identifier: Apache-2.0
// For the author of a KV store: moves a cached prompt to other positions and pages, in all layers.
// Before that, the check for CI: two prefills of one prompt must differ by exactly that move.
//
//   move_keys                 computes here
//   move_keys unix:/SOCKET    asks a server; if it leases memory, the keys are moved where they lie
#include <cmath>
#include <cstdio>

#include "client/client.h"

constexpr int64_t kLayers = 4, kPages = 16, kPageSize = 4, kHeads = 2, kHeadDim = 64, kTokens = 7;
constexpr int64_t kHalf = kHeadDim / 2;
using BlockTable = std::vector<int64_t>;

// Stands for the engine: prefills the prompt at `offset`, its keys in the pages of `table`.
void Prefill(const BlockTable& table, int64_t offset, absl::Span<float> pool) {
  for (int64_t i = 0; i < kLayers * kTokens * kHeads * kHalf; ++i) {
    const int64_t pair = i % kHalf, head = i / kHalf % kHeads, token = i / kHalf / kHeads % kTokens;
    const int64_t page = i / kHalf / kHeads / kTokens * kPages + table[token / kPageSize];
    const int64_t key = ((page * kPageSize + token % kPageSize) * kHeads + head) * kHeadDim;
    const double angle = std::pow(500000.0, -1.0 * pair / kHalf) * (offset + token) + i;
    pool[key + pair] = static_cast<float>(std::cos(angle));
    pool[key + pair + kHalf] = static_cast<float>(std::sin(angle));
  }
}

// The check for CI: whether all layers hold at the destination what the move would put there.
bool Agrees(const phasor::Client& client, phasor::MoveCall call) {
  call.mode = phasor::MoveMode::kCompare;
  const phasor::MoveResult result = client.MoveKeys(call).value();
  int bad = 0;
  for (const auto& layer : result.differences) bad += static_cast<int>(layer.bad_rows);
  std::printf("base %g: %d rows differ\n", call.specs[0].spec.rope_theta.value(), bad);
  return bad == 0;
}

int main(int argc, char** argv) {
  const phasor::Client client = phasor::Client::Connect(argc > 1 ? argv[1] : "inproc:").value();
  const auto pool = client.AllocateShared(kLayers * kPages * kPageSize * kHeads * kHeadDim * 4);
  std::printf("%s memory\n", pool->shared() ? "leased" : "ordinary");
  const BlockTable stored = {5, 1}, again = {0, 6}, request = {8, 2};
  Prefill(stored, 0, pool->span<float>());
  Prefill(again, 1000, pool->span<float>());

  phasor::MoveCall call = {.pools = {pool->span<std::byte>()}};
  call.layouts = {{"nhd", phasor::KeyCode::kFloat32, kPages, kPageSize, kHeads, kHeadDim, kLayers}};
  call.specs = {{.spec = {.preset = "rope-half-split", .rope_theta = 500000}}};
  for (int64_t i = 0; i < kLayers; ++i) call.layers.push_back({.spec = 0, .layer = i});
  phasor::KeyRun run = {.block_table = stored, .count = kTokens, .to = 1000};
  run.to_block_table = again;
  call.groups = {{.runs = {run}}};
  if (!Agrees(client, call)) return 1;  // never serve keys that fail it

  call.groups[0].runs[0].to_block_table = request;  // from here on as in production
  if (!client.MoveKeys(call).ok() || !Agrees(client, call)) return 1;
  call.specs[0].spec.rope_theta = 10000;  // the check finds what is wrong
  return Agrees(client, call) ? 1 : 0;
}
