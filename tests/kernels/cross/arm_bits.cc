// SPDX-License-Identifier: Apache-2.0
// Compares the Arm kernels with the scalar reference byte for byte. It links neither GoogleTest nor
// Abseil, so that arm_bits.sh can cross-compile it and run it under emulation.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/reference/reference.h"

namespace phasor {
namespace {

constexpr int64_t kRows = 11;
int compared = 0, different = 0;

PhaseTable Table(int64_t pairs) {
  PhaseTable table;
  table.half = ((pairs + 1) / 2 + 15) / 16 * 16;
  table.fraction.assign(2 * table.half, 0);
  table.whole.assign(2 * table.half, 0);
  table.runs = {{0, 0, 2 * table.half}};
  for (int64_t j = 0; j < pairs; ++j) {
    table.fraction[table.Entry(j)] =
        static_cast<uint64_t>(std::ldexp(std::pow(1e4, -1.0 * j / pairs) / 6.283185307179586, 64));
  }
  return table;
}

// With a real first position rows use the direct formula; with a whole one they advance by a step.
std::vector<Position> Places(bool real) {
  std::vector<Position> places;
  for (int64_t t = 0; t < kRows; ++t) {
    places.push_back({131000 + 3 * t, real ? uint64_t{1} << 61 : 0});
  }
  return places;
}

std::vector<std::byte> Random(int64_t bytes) {
  std::mt19937_64 random(5);
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random() & 0x3F);  // finite in every dtype
  return out;
}

std::byte* Scratch(int64_t bytes) {
  return static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 4095) / 4096 * 4096));
}

void Compare(const std::vector<std::byte>& a, const std::vector<std::byte>& b, const char* what,
             Dtype dtype, int64_t pairs) {
  ++compared;
  if (a == b) return;
  ++different;
  std::printf("DIFFERS %s %s pairs %d\n", what, std::string(Name(dtype)).c_str(),
              static_cast<int>(pairs));
}

RowLayout Layout(int64_t pairs, bool interleaved, bool negated) {
  RowLayout layout;
  layout.width = layout.content_end = 2 * pairs;
  layout.cos_bias = negated ? -1 : 0;
  layout.blocks = {
      {0, pairs, 0, interleaved ? 1 : pairs, interleaved ? 2 : 1, /*accumulate=*/false, negated}};
  return layout;
}

Xpos Rates(int64_t pairs) {
  Xpos xpos;
  for (int64_t j = 0; j < pairs; ++j) xpos.rate.push_back((uint64_t{1} << 55) / (j + 1));
  xpos.center = {11, uint64_t{3} << 62};
  return xpos;
}

void CompareEncode(Dtype dtype, int64_t pairs, bool real, bool interleaved, bool add, bool any) {
  const PhaseTable table = Table(pairs);
  const auto places = Places(real);
  const RowLayout layout = Layout(pairs, interleaved, any);
  const Xpos xpos = Rates(pairs);
  const auto embedding = Random(kRows * 2 * pairs * SizeOf(dtype));
  EncodeArgs args;
  args.table = &table;
  args.positions = places.data();
  args.rows = kRows;
  args.layout = &layout;
  args.xpos = any ? &xpos : nullptr;
  args.dtype = dtype;
  args.out_row_bytes = args.add_to_row_bytes = 2 * pairs * SizeOf(dtype);
  args.add_to = add ? embedding.data() : nullptr;
  args.embedding_scale = 1.7;
  args.scratch = Scratch(EncodeScratchBytes(table, layout.width));
  std::vector<std::byte> want(embedding.size()), got(embedding.size());
  args.out = want.data();
  reference::Encode(args);
  args.out = got.data();
  cpu::GetEncode(cpu::Target::kArm)(args);
  std::free(args.scratch);
  Compare(want, got, "encode", dtype, pairs);
}

void CompareRotary(Dtype dtype, Float8 float8, int64_t pairs, Pairing in, Pairing out, bool inverse,
                   bool heads) {
  const PhaseTable table = Table(heads ? 2 * pairs : pairs);
  const Xpos xpos = Rates(2 * pairs);
  const auto places = Places(inverse);
  const int64_t head_bytes = (2 * pairs + 3) * SizeOf(dtype);
  const int64_t y_bytes = float8 == Float8::kNone ? head_bytes : 2 * pairs + 3;
  const auto x = Random(kRows * 2 * head_bytes);
  std::vector<std::byte> want(kRows * 2 * y_bytes), got(want.size());
  RotaryArgs::Tensor tensor{dtype,      2,           x.data(),    2 * head_bytes,
                            head_bytes, want.data(), 2 * y_bytes, y_bytes};
  tensor.float8 = float8;
  tensor.inv_scale = 7.3f;
  RotaryArgs args;
  args.table = &table;
  args.inverse = inverse;
  args.head_dim = 2 * pairs + 3;
  args.rotary_begin = 1;
  args.pairs = pairs;
  if (heads) {  // with their own frequencies, and xPos
    args.frequency_heads = 2;
    args.head_pairs = pairs;
    args.xpos = &xpos;
  }
  args.pairing_in = in;
  args.pairing_out = out;
  args.tensors = &tensor;
  args.tensor_count = 1;
  args.scratch = Scratch(RotaryScratchBytes(table, pairs, args.frequency_heads));
  const auto run = [&](cpu::RotaryKernel kernel, std::byte* y) {
    for (int64_t t = 0; t < kRows; ++t) {  // tiles of one token: every tile size is allowed
      args.positions = &places[t];
      args.tokens = 1;
      tensor.x = x.data() + t * 2 * head_bytes;
      tensor.y = y + t * 2 * y_bytes;
      kernel(args);
    }
  };
  run(&reference::Rotary, want.data());
  run(cpu::GetRotary(cpu::Target::kArm), got.data());
  std::free(args.scratch);
  Compare(want, got, "rotary", dtype, pairs);
}

}  // namespace
}  // namespace phasor

int main() {
  using namespace phasor;
  for (Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    for (int64_t pairs : {1, 3, 4, 8, 9, 16, 33, 64}) {
      for (int bits = 0; bits < 16; ++bits) {
        CompareEncode(dtype, pairs, bits & 1, bits & 2, bits & 4, bits & 8);
        for (const Float8 float8 : {Float8::kNone, Float8::kE4M3, Float8::kE5M2}) {
          if (float8 != Float8::kNone && SizeOf(dtype) != 2) continue;
          CompareRotary(dtype, float8, pairs, static_cast<Pairing>(bits & 1),
                        static_cast<Pairing>(bits >> 1 & 1), bits & 4,
                        (bits & 8) != 0 && pairs % 2 == 0);
        }
      }
    }
  }
  std::printf("%d comparisons, %d differ\n", compared, different);
  return different == 0 ? 0 : 1;
}
