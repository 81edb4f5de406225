// SPDX-License-Identifier: Apache-2.0
// Encodes and rotates in an upstream's arithmetic, one token at a time.
#include "kernels/reference/parity.h"

#include <cstring>
#include <vector>

#include "kernels/plan/parity/angles.h"
#include "kernels/plan/parity/rounding.h"
#include "kernels/reference/scalar.h"
#include "kernels/spec/ladders.h"

namespace phasor::reference {
namespace {

using parity::Round;

// Computes the sines and cosines of one token at a time. Threads: one thread at a time.
class TokenTables {
 public:
  TokenTables(const Plan& plan, bool inverse)
      : tables_(*plan.parity),
        axis_(plan.axis),
        inverse_(inverse),
        amplitude_(inverse ? Round(tables_.angle, 1 / tables_.amplitude) : tables_.amplitude),
        angles_(static_cast<size_t>(plan.pairs)),
        unrounded_(angles_.size()),
        rounded_(angles_.size()) {}

  void Compute(const Position* p) {
    parity::TokenAngles(tables_, axis_, p, absl::MakeSpan(angles_));
    parity::TokenSinCos(tables_, angles_, amplitude_, unrounded_.data());
  }

  // Those of the last token, rounded as a tensor of dtype `model` uses them.
  const SinCos<double>* For(Dtype model) {
    const Dtype type = tables_.TableType(model);
    for (size_t j = 0; j < rounded_.size(); ++j) {
      const double sin = Round(type, unrounded_[j].sin);
      rounded_[j] = {inverse_ ? -sin : sin, Round(type, unrounded_[j].cos)};
    }
    return rounded_.data();
  }

 private:
  const ParityTables& tables_;
  const absl::Span<const uint8_t> axis_;
  const bool inverse_;
  const double amplitude_;
  std::vector<double> angles_;
  std::vector<SinCos<double>> unrounded_, rounded_;
};

void Put(Dtype type, bool accumulate, double value, double* column) {
  *column = accumulate ? Round(type, *column + value) : value;
}

// Writes the sines and cosines of a token to the columns of a row.
void LayOut(const RowLayout& layout, Dtype type, const SinCos<double>* v,
            std::vector<double>& row) {
  std::fill(row.begin(), row.end(), 0.0);
  for (const EncodeBlock& block : layout.blocks) {
    for (int64_t i = 0; i < block.pairs; ++i) {
      const SinCos<double>& pair = v[block.first_pair + i];
      const double sin = block.negate_sin ? -pair.sin : pair.sin;
      const int64_t at = i * block.stride;
      if (block.sin_begin >= 0) Put(type, block.accumulate, sin, &row[block.sin_begin + at]);
      if (block.cos_begin >= 0) Put(type, block.accumulate, pair.cos, &row[block.cos_begin + at]);
    }
  }
}

// The lane of component 0 or 1 of pair j.
int64_t Lane(const ResolvedSpec& spec, Pairing pairing, int64_t j, int component) {
  return spec.rotary_begin +
         LaneOfPair(pairing, spec.rotary_dim / 2, PairBlocksOf(spec), j, component);
}

// Rotates one head. `turned` has room for the rotary lanes: an in-place rotation may change the
// pairing.
template <typename Element>
void RotateHead(const RotaryJob& job, Dtype math, const SinCos<double>* v, const std::byte* x,
                std::byte* y, std::vector<double>& turned) {
  constexpr int64_t kBytes = Element::kBytes;
  const ResolvedSpec& spec = job.plan->spec;
  const Pairing in = PairingIn(job);
  const Pairing out = PairingOut(job);
  const auto rn = [math](double value) { return Round(math, value); };
  const int64_t pairs = spec.rotary_dim / 2;
  for (int64_t j = 0; j < pairs; ++j) {
    const double x1 = rn(Element::Load(x + Lane(spec, in, j, 0) * kBytes));
    const double x2 = rn(Element::Load(x + Lane(spec, in, j, 1) * kBytes));
    turned[2 * j] = rn(rn(x1 * v[j].cos) - rn(x2 * v[j].sin));
    turned[2 * j + 1] = rn(rn(x2 * v[j].cos) + rn(x1 * v[j].sin));
  }
  using Math = typename Element::Math;
  for (int64_t j = 0; j < 2 * pairs; ++j) {
    const int64_t lane = Lane(spec, out, j / 2, static_cast<int>(j % 2));
    Element::Store(static_cast<Math>(turned[j]), y + lane * kBytes);
  }
  if (x == y) return;
  const int64_t end = spec.rotary_begin + spec.rotary_dim;
  std::memcpy(y, x, spec.rotary_begin * kBytes);
  std::memcpy(y + end * kBytes, x + end * kBytes, (spec.head_dim - end) * kBytes);
}

void RotateToken(const RotaryJob& job, const RotaryTensor& tensor, int64_t b, int64_t t,
                 const SinCos<double>* v, std::vector<double>& turned) {
  const Plan& plan = *job.plan;
  const bool gathered = !tensor.pieces.empty();
  const RotaryStrides& xs = gathered ? tensor.y_strides : tensor.x_strides;
  const RotaryStrides& ys = tensor.y_strides;
  const std::byte* const x = (gathered ? tensor.y : tensor.x) + b * xs.batch + t * xs.token;
  std::byte* const y = tensor.y + b * ys.batch + t * ys.token;
  const Dtype math = plan.parity->MathType(tensor.dtype);
  VisitElement(tensor.dtype, [&]<typename Element>(Element) {
    for (int64_t h = 0; h < tensor.heads; ++h) {
      const int64_t first = plan.heads == 1 ? 0 : h * plan.head_pairs();
      RotateHead<Element>(job, math, v + first, x + h * xs.head, y + h * ys.head, turned);
    }
  });
}

}  // namespace

void EncodeParity(const EncodeJob& job, int64_t first, int64_t count) {
  const Plan& plan = *job.plan;
  const RowLayout& layout = job.layout != nullptr ? *job.layout : plan.layout;
  const Dtype math = plan.parity->MathType(job.dtype);
  const Dtype table = plan.parity->TableType(job.dtype);
  const double scale = Round(math, job.embedding_scale);
  TokenTables tokens(plan, /*inverse=*/false);
  std::vector<double> row(static_cast<size_t>(layout.width));
  for (int64_t t = first; t < first + count; ++t) {
    Position p[kMaxAxes];
    ReadPositions(*job.positions, t, 1, p);
    tokens.Compute(p);
    LayOut(layout, table, tokens.For(job.dtype), row);
    VisitElement(job.dtype, [&]<typename Element>(Element) {
      using Math = typename Element::Math;
      for (int64_t c = 0; c < layout.width; ++c) {
        const int64_t at = c * Element::kBytes;
        double value = row[c];
        if (job.add_to != nullptr) {
          const double given = Element::Load(job.add_to + t * job.add_to_row_bytes + at);
          value = Round(math, Round(math, scale * Round(math, given)) + Round(math, value));
        }
        Element::Store(static_cast<Math>(value), job.out + t * job.out_row_bytes + at);
      }
    });
  }
}

void RotateParity(const RotaryJob& job, int64_t first, int64_t count) {
  const Plan& plan = *job.plan;
  TokenTables tokens(plan, job.inverse);
  std::vector<double> turned(static_cast<size_t>(plan.spec.rotary_dim));
  for (int64_t i = first; i < first + count; ++i) {
    const int64_t b = i / job.tokens;
    const int64_t t = i % job.tokens;
    Position p[kMaxAxes];
    ReadPositions(*job.positions, job.positions->batch == 1 ? t : i, 1, p);
    tokens.Compute(p);
    for (const RotaryTensor& tensor : job.tensors) {
      RotateToken(job, tensor, b, t, tokens.For(tensor.dtype), turned);
    }
  }
}

}  // namespace phasor::reference
