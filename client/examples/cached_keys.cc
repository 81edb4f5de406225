// SPDX-License-Identifier: Apache-2.0
// Moves the keys of a KV cache: a context shift, reuse at another offset, and a change of spec.
// Each step compares the keys with keys that were rotated once, directly for their final positions.
// docs/cached-keys.md explains the steps.
//
//   cached_keys                        computes here
//   cached_keys dns:///phasor:50051    asks a server
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"

namespace {

constexpr int64_t kHeads = 2, kHeadDim = 64;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// What a cache keeps: rotated keys, their positions, and the spec that rotated them.
struct CachedKeys {
  std::vector<float> keys;  // [tokens, heads, head_dim]
  std::vector<int64_t> positions;
  phasor::Spec spec;
  std::string fingerprint;

  int64_t tokens() const { return static_cast<int64_t>(positions.size()); }
  phasor::MutableTensorView view() {
    return phasor::MutableView(keys, {tokens(), kHeads, kHeadDim});
  }
};

// Rotates the keys that a model's projection computed, and stores them.
CachedKeys Store(const phasor::Client& client, const phasor::Spec& spec, std::vector<float> keys,
                 std::vector<int64_t> positions) {
  CachedKeys cached = {std::move(keys), std::move(positions), spec, ""};
  const auto info = client.ApplyRoPE(spec, cached.positions, {cached.view()});
  Check(info.status());
  cached.fingerprint = info->spec_fingerprint;
  return cached;
}

// Moves keys to `positions` under `spec`, in place.
void Move(const phasor::Client& client, const phasor::Spec& spec, std::vector<int64_t> positions,
          CachedKeys& cached) {
  // The spec must still have the meaning that it had when the keys were stored.
  const auto details = client.ResolveSpec(cached.spec);
  Check(details.status());
  if (details->info.spec_fingerprint != cached.fingerprint) {
    Check(absl::FailedPreconditionError("these keys were rotated by another spec"));
  }
  const auto info = client.ApplyRoPE(phasor::RopeCall{.spec = spec,
                                                      .positions = positions,
                                                      .tensors = {cached.view()},
                                                      .direction = phasor::Direction::kDelta,
                                                      .from_positions = cached.positions,
                                                      .from_spec = cached.spec});
  Check(info.status());
  cached.positions = std::move(positions);
  cached.spec = spec;
  cached.fingerprint = info->spec_fingerprint;
}

// Drops tokens [begin, end) and moves the tokens after them down.
void ShiftContext(const phasor::Client& client, int64_t begin, int64_t end, CachedKeys& cached) {
  constexpr int64_t kToken = kHeads * kHeadDim;
  cached.keys.erase(cached.keys.begin() + begin * kToken, cached.keys.begin() + end * kToken);
  cached.positions.erase(cached.positions.begin() + begin, cached.positions.begin() + end);
  std::vector<int64_t> closed = cached.positions;
  for (size_t t = begin; t < closed.size(); ++t) closed[t] -= end - begin;
  Move(client, cached.spec, std::move(closed), cached);  // keys before `begin` keep their bits
}

std::vector<int64_t> Range(int64_t begin, int64_t count) {
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(begin + i);
  return positions;
}

// What the projection computed for tokens `first` and following of the text.
std::vector<float> Projected(int64_t first, int64_t count) {
  std::vector<float> keys;
  for (int64_t i = first * kHeads * kHeadDim; i < (first + count) * kHeads * kHeadDim; ++i) {
    keys.push_back(static_cast<float>(i * 37 % 1001) / 500 - 1);
  }
  return keys;
}

bool Compare(const char* what, const std::vector<float>& got, const std::vector<float>& want) {
  float worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  const bool good = got.size() == want.size() && worst < 1e-5f;
  std::printf("%-36s largest difference %.1e  %s\n", what, worst, good ? "ok" : "WRONG");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  const auto client = phasor::Client::Connect(argc > 1 ? argv[1] : "inproc:");
  Check(client.status());
  const phasor::Spec before = {.preset = "rope-half-split", .head_dim = kHeadDim};
  // Other frequencies and another amplitude, as LongRoPE has beyond its original length.
  const phasor::Spec after = {.preset = "rope-half-split",
                              .rope_theta = 500000,
                              .head_dim = kHeadDim,
                              .attention_factor = 1.19};

  CachedKeys cached = Store(*client, before, Projected(0, 16), Range(0, 16));
  ShiftContext(*client, 4, 12, cached);
  std::vector<float> kept = Projected(0, 4);
  const std::vector<float> rest = Projected(12, 4);
  kept.insert(kept.end(), rest.begin(), rest.end());
  bool good =
      Compare("after a context shift", cached.keys, Store(*client, before, kept, Range(0, 8)).keys);

  Move(*client, before, Range(5000, 8), cached);
  good &= Compare("behind a prompt of 5000 tokens", cached.keys,
                  Store(*client, before, kept, Range(5000, 8)).keys);

  Move(*client, after, Range(5000, 8), cached);
  good &= Compare("under another spec and amplitude", cached.keys,
                  Store(*client, after, kept, Range(5000, 8)).keys);
  return good ? 0 : 1;
}
