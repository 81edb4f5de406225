// SPDX-License-Identifier: Apache-2.0
// Key caches for tests: stored rows as numbers, and where a move should put them. Addresses and
// codes are computed here in the plainest way, not with the code under test.
#ifndef PHASOR_TESTS_SUPPORT_KEY_CACHE_H_
#define PHASOR_TESTS_SUPPORT_KEY_CACHE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/math/convert.h"
#include "kernels/request/key_layouts.h"
#include "kernels/request/move_keys.h"
#include "tests/support/specs.h"

namespace phasor::testing {

using Pool = std::vector<std::byte>;

// The value of lane `lane` of a stored row, before a Hadamard transform is undone.
inline double StoredLane(const KeyForm& form, const std::byte* row, double scale, int64_t lane) {
  const auto half = [](const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, 2);
    return bits;
  };
  const std::byte* p =
      row + (form.group_lanes < form.head_dim ? lane / form.group_lanes * form.group_bytes +
                                                    lane % form.group_lanes * form.lane_bytes
                                              : lane * form.lane_bytes);
  const int64_t i = lane % 32;
  const std::byte* block = row + lane / 32 * UnitBytes(form.code);
  const auto nibble = [&](int64_t at) {
    const int byte = static_cast<int>(block[at + i % 16]);
    return i < 16 ? byte & 15 : byte >> 4;
  };
  const auto fifth = [&](int64_t at) {
    return (static_cast<int>(block[at + i / 8]) >> (i % 8) & 1) << 4;
  };
  const auto d = [&] { return static_cast<double>(FloatFromFloat16(half(block))); };
  const auto m = [&] { return static_cast<double>(FloatFromFloat16(half(block + 2))); };
  switch (form.code) {
    case KeyCode::kFloat32: {
      float v;
      std::memcpy(&v, p, 4);
      return v;
    }
    case KeyCode::kFloat16:
      return FloatFromFloat16(half(p));
    case KeyCode::kBFloat16:
      return FloatFromBFloat16(half(p));
    case KeyCode::kFloat8E4M3:
      return scale * FloatFromFloat8(static_cast<uint8_t>(*p), Float8::kE4M3);
    case KeyCode::kFloat8E5M2:
      return scale * FloatFromFloat8(static_cast<uint8_t>(*p), Float8::kE5M2);
    case KeyCode::kInt8:
      return scale * static_cast<int8_t>(*p);
    case KeyCode::kQ8_0:
      return d() * static_cast<int8_t>(block[2 + i]);
    case KeyCode::kQ4_0:
      return d() * (nibble(2) - 8);
    case KeyCode::kQ4_1:
      return d() * nibble(4) + m();
    case KeyCode::kQ5_0:
      return d() * (nibble(6) + fifth(2) - 16);
    case KeyCode::kQ5_1:
      return d() * (nibble(8) + fifth(4)) + m();
  }
  return 0;
}

// The key at (slot, head) as its model knows it.
inline std::vector<double> KeyAt(const KeyForm& form, const Pool& pool, int64_t first_lane,
                                 int64_t slot, int64_t head) {
  const int64_t page = slot / form.page_size, place = slot % form.page_size;
  const std::byte* const row = pool.data() + first_lane + page * form.page_bytes +
                               place * form.slot_bytes + head * form.head_bytes;
  double scale = form.scale;
  if (form.scaled_rows) {
    float stored;
    std::memcpy(&stored,
                pool.data() + first_lane + form.scales.offset + page * form.scales.page_bytes +
                    place * form.scales.slot_bytes + head * form.scales.head_bytes,
                4);
    scale = stored;
  }
  std::vector<double> lanes(static_cast<size_t>(form.head_dim));
  for (int64_t i = 0; i < form.head_dim; ++i) {
    lanes[static_cast<size_t>(i)] = StoredLane(form, row, scale, i);
  }
  if (form.hadamard == 0) return lanes;
  std::vector<double> out(lanes.size());
  const auto n = static_cast<size_t>(form.hadamard);
  for (size_t i = 0; i < lanes.size(); ++i) {
    for (size_t k = 0; k < n; ++k) {
      const double sign = __builtin_popcountll((i % n) & k) % 2 == 0 ? 1 : -1;
      out[i] += sign * lanes[i / n * n + k] / std::sqrt(static_cast<double>(n));
    }
  }
  return out;
}

// Relative RMS error that rounding to a code may make in Gaussian lanes.
inline double StorageError(KeyCode code) {
  switch (code) {
    case KeyCode::kFloat32:
      return 1e-7;
    case KeyCode::kFloat16:
      return 0.00026;
    case KeyCode::kBFloat16:
      return 0.0019;
    case KeyCode::kFloat8E4M3:
      return 0.030;
    case KeyCode::kFloat8E5M2:
      return 0.055;
    case KeyCode::kInt8:
      return 0.0072;
    case KeyCode::kQ8_0:
      return 0.0060;
    case KeyCode::kQ4_0:
      return 0.095;
    case KeyCode::kQ4_1:
      return 0.075;
    case KeyCode::kQ5_0:
      return 0.047;
    case KeyCode::kQ5_1:
      return 0.035;
  }
  return 0;
}

// Random stored rows: every byte is such that codes and scales are ordinary numbers.
inline void FillRows(const KeyForm& form, int64_t first_lane, uint32_t seed, Pool* pool) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto put_half = [&](float v, std::byte* p) {
    const uint16_t bits =
        form.code == KeyCode::kBFloat16 ? BFloat16FromFloat(v) : Float16FromFloat(v);
    std::memcpy(p, &bits, 2);
  };
  for (int64_t slot = 0; slot < form.slots(); ++slot) {
    for (int64_t head = 0; head < form.heads; ++head) {
      std::byte* const row = pool->data() + first_lane + form.RowOf(slot) + head * form.head_bytes;
      if (form.scaled_rows) {
        const float scale = 0.01f + 0.01f * std::abs(normal(random));
        std::memcpy(pool->data() + first_lane + form.ScaleOf(slot, head), &scale, 4);
      }
      if (IsBlockCode(form.code)) {
        for (int64_t b = 0; b < form.head_dim / 32; ++b) {
          std::byte* const block = row + b * UnitBytes(form.code);
          for (int64_t i = 0; i < UnitBytes(form.code); ++i) block[i] = std::byte(random());
          put_half(0.01f + 0.01f * std::abs(normal(random)), block);
          if (form.code == KeyCode::kQ4_1 || form.code == KeyCode::kQ5_1) {
            put_half(-0.1f, block + 2);
          }
        }
        continue;
      }
      for (int64_t i = 0; i < form.head_dim; ++i) {
        std::byte* const p =
            row + i / form.group_lanes * form.group_bytes + i % form.group_lanes * form.lane_bytes;
        const float v = normal(random);
        if (form.code == KeyCode::kFloat32) {
          std::memcpy(p, &v, 4);
        } else if (UnitBytes(form.code) == 2) {
          put_half(v, p);
        } else if (form.code == KeyCode::kInt8) {
          *p = std::byte(static_cast<int8_t>(40 * v < -120 ? -120 : 40 * v > 120 ? 120 : 40 * v));
        } else {
          *p = std::byte(Float8FromFloat(
              v, form.code == KeyCode::kFloat8E4M3 ? Float8::kE4M3 : Float8::kE5M2));
        }
      }
    }
  }
}

// Rotates the lanes of one key from one position to another, by libm in double precision. Half
// split or interleaved pairs of lanes [begin, begin + 2 * pairs).
inline void TurnKey(double base, double distance, int64_t begin, int64_t pairs, bool half_split,
                    std::vector<double>* key) {
  for (int64_t j = 0; j < pairs; ++j) {
    const double angle = std::fmod(
        distance * std::pow(base, -static_cast<double>(j) / static_cast<double>(pairs)), 2 * M_PI);
    const auto a = static_cast<size_t>(begin + (half_split ? j : 2 * j));
    const auto b = half_split ? a + static_cast<size_t>(pairs) : a + 1;
    const double x = (*key)[a], y = (*key)[b];
    (*key)[a] = x * std::cos(angle) - y * std::sin(angle);
    (*key)[b] = x * std::sin(angle) + y * std::cos(angle);
  }
}

inline double RelativeRms(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// Prepares and runs a move on `pools` in place. `report`: of COMPARE, resized here.
inline absl::Status RunMove(const MoveRequest& request, Backend& backend, std::vector<Pool>* pools,
                            std::vector<std::byte>* report = nullptr) {
  auto prepared = PrepareMove(request, CompilePlan, "item");
  if (!prepared.ok()) return prepared.status();
  std::vector<std::byte*> memory;
  for (Pool& pool : *pools) memory.push_back(pool.data());
  std::vector<std::byte> unused;
  if (report == nullptr) report = &unused;
  report->resize(prepared->layers * sizeof(KeyReport));
  const Job jobs[] = {MakeMoveJob(*prepared, memory, report->data())};
  return backend.Run(jobs);
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_KEY_CACHE_H_
