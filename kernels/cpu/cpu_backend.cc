// SPDX-License-Identifier: Apache-2.0
// Splits jobs into pieces, gives them to a thread pool, and calls the kernels tile by tile.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <new>

#include "absl/container/inlined_vector.h"
#include "hwy/cache_control.h"
#include "kernels/cpu/move.h"
#include "kernels/cpu/rotary_args.h"
#include "kernels/cpu/table_jobs.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/reference/parity.h"

namespace phasor::cpu {
namespace {

// The work of one thread below which no other one is asked to help, be it one job or many. Waking
// a thread costs tens of microseconds, in which a core writes a few hundred KiB.
constexpr int64_t kShareBytes = 256 << 10;

// Tokens of a piece of a move, at least: a page of most caches.
constexpr int64_t kMovePiece = 16;

// Rows encoded per kernel call. The positions of one tile are on the stack of its thread.
constexpr int64_t kEncodeTile = 256;

// Working memory of one thread, aligned to 64 bytes and kept between calls. Threads: one thread.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::byte* Get(int64_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      size_ = (bytes + 4095) / 4096 * 4096;
      data_ = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(size_)));
      if (data_ == nullptr) throw std::bad_alloc();
    }
    return data_;
  }

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// A piece of a job: rows or tokens [first, first + count). `bytes`: what a vector kernel writes in
// the time that the piece takes.
struct Piece {
  const Job* job;
  int64_t first;
  int64_t count;
  int64_t bytes;
};
using Pieces = absl::InlinedVector<Piece, 4>;

// Pieces that one thread takes together.
using Shares = absl::InlinedVector<absl::Span<const Piece>, 4>;

// Neighbours share a thread up to kShareBytes.
Shares SharesOf(const Pieces& pieces) {
  Shares shares;
  int64_t room = 0;
  for (const Piece& piece : pieces) {
    if (shares.empty() || piece.bytes > room) {
      shares.emplace_back(&piece, 0);
      room = kShareBytes;
    }
    shares.back() = {shares.back().data(), shares.back().size() + 1};
    room -= piece.bytes;
  }
  return shares;
}

// What a core may have of the last-level cache. sysconf would add up the caches of a whole AMD
// socket. Hosts with many cores may report hundreds of MiB, of which a virtual machine has a small
// part.
int64_t LastLevelCacheBytes() {
  constexpr int64_t kMost = int64_t{32} << 20;
  std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index3/size");  // such as 32768K
  int64_t kib = 0;
  return (size >> kib) && kib > 0 ? std::min(kib << 10, kMost) : kMost;
}

// How many pages of a token memory should serve at once; 0: tensors should not be fetched ahead. On
// an Intel Xeon a copy of four pages at once is 7 % faster than one by one. On an AMD EPYC of Zen 5
// rotations are mostly 5 to 25 % faster one by one. That of Zen 4 finds the tokens of a tensor by
// itself: without fetching, rotations of one core with AVX-512 are mostly 1.1 to 1.4 times as fast.
int64_t PagesInTurns([[maybe_unused]] Target target) {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return 4;
  const bool zen3_or_4 = __builtin_cpu_is("amdfam19h");
  if (zen3_or_4 && target == Target::kAvx3) return 0;
#endif
  return 1;
}

// Runs jobs on the caller's thread and a pool. Threads: as Backend says. Owns the pool.
class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options)
      : options_(options),
        encode_(GetEncode(options.target)),
        rotary_(GetRotary(options.target)),
        stream_bytes_(options.stream_bytes > 0 ? options.stream_bytes : LastLevelCacheBytes() / 2),
        pages_in_turns_(options.pages_in_turns.value_or(PagesInTurns(options.target))),
        pool_(options.threads) {}

  std::string_view name() const override { return options_.name; }
  std::string target() const override { return std::string(Name(options_.target)); }
  int threads() const override { return pool_.threads(); }

  absl::Status Run(absl::Span<const Job> jobs) override {
    Pieces pieces;
    for (const Job& job : jobs) {
      if (const auto* rotary = std::get_if<RotaryJob>(&job)) GatherWhole(*rotary);
      Split(job, &pieces);
    }
    const Shares shares = SharesOf(pieces);
    pool_.ParallelFor(static_cast<int64_t>(shares.size()), [&](int64_t i) {
      for (const Piece& piece : shares[static_cast<size_t>(i)]) RunPiece(piece);
    });
    return absl::OkStatus();
  }

 private:
  // The rows or tokens of a job. RowBytes is what one of them writes.
  static int64_t Rows(const Job& job) {
    if (const auto* encode = std::get_if<EncodeJob>(&job)) return encode->positions->count();
    if (const auto* lookup = std::get_if<LookupJob>(&job)) return lookup->positions->count();
    if (const auto* bias = std::get_if<BiasJob>(&job)) return BiasRows(*bias);
    if (const auto* move = std::get_if<MoveJob>(&job)) return MoveRows(*move);
    const auto& rotary = std::get<RotaryJob>(job);
    return rotary.batch * rotary.tokens;
  }
  static int64_t RowBytes(const Job& job) {
    if (const auto* encode = std::get_if<EncodeJob>(&job))
      return LayoutOf(*encode).width * SizeOf(encode->dtype);
    if (const auto* lookup = std::get_if<LookupJob>(&job))
      return lookup->table->columns * SizeOf(lookup->dtype);
    if (const auto* bias = std::get_if<BiasJob>(&job)) return bias->heads * BiasRowBytes(*bias);
    if (const auto* move = std::get_if<MoveJob>(&job)) return MoveRowBytes(*move);
    const auto& rotary = std::get<RotaryJob>(job);
    int64_t bytes = 0;
    for (const RotaryTensor& t : rotary.tensors) {
      bytes += t.heads * rotary.plan->spec.head_dim * SizeOf(t.dtype);
    }
    return bytes;
  }

  // Whether it runs in PARITY's scalar loops, which write a byte in about the time of 16.
  static bool IsScalar(const Job& job) {
    if (const auto* encode = std::get_if<EncodeJob>(&job)) return encode->plan->parity.has_value();
    const auto* const rotary = std::get_if<RotaryJob>(&job);
    return rotary != nullptr && rotary->plan->parity.has_value();
  }

  void Split(const Job& job, Pieces* pieces) const {
    const int64_t rows = Rows(job);
    if (rows == 0) return;
    const int64_t row_bytes = std::max<int64_t>(RowBytes(job), 1) * (IsScalar(job) ? 16 : 1);
    // A piece of a move has several tokens: each has a row in every layer, and only several fill
    // pages.
    const auto* const move = std::get_if<MoveJob>(&job);
    const int64_t least = move != nullptr && move->mode != MoveMode::kCompare ? kMovePiece : 1;
    const bool whole = threads() == 1 && !(move != nullptr && move->stop != nullptr);
    // Of about kShareBytes each; if there are more than threads, equally many for each of them.
    int64_t count = whole ? 1 : (rows * row_bytes + kShareBytes - 1) / kShareBytes;
    if (count > threads()) count = (count + threads() - 1) / threads() * threads();
    const int64_t per_piece = std::max((rows + count - 1) / count, std::min(least, rows));
    for (int64_t first = 0; first < rows; first += per_piece) {
      const int64_t taken = std::min(per_piece, rows - first);
      pieces->push_back({&job, first, taken, taken * row_bytes});
    }
  }

  void RunPiece(const Piece& piece) const {
    if (const auto* job = std::get_if<EncodeJob>(piece.job)) {
      RunEncode(*job, piece.first, piece.count);
    } else if (const auto* lookup = std::get_if<LookupJob>(piece.job)) {
      RunLookup(*lookup, piece.first, piece.count);
    } else if (const auto* bias = std::get_if<BiasJob>(piece.job)) {
      RunBias(*bias, piece.first, piece.count);
    } else if (const auto* move = std::get_if<MoveJob>(piece.job)) {
      if (move->stop != nullptr && !move->stop->MayBegin()) return;
      const bool large = MoveRowBytes(*move) * MoveRows(*move) > stream_bytes_;
      RunMove(*move, piece.first, piece.count, rotary_,
              large ? std::max<int64_t>(pages_in_turns_, 1) : 0,
              [](int64_t bytes) { return ThreadScratch().Get(bytes); });
    } else {
      RunRotary(std::get<RotaryJob>(*piece.job), piece.first, piece.count);
    }
  }

  // Whether consecutive tokens are consecutive bytes, so that each piece of the job can gather its
  // own.
  static bool TokensAreContiguous(const RotaryJob& job, const RotaryTensor& tensor) {
    const int64_t head_bytes = job.plan->spec.head_dim * SizeOf(tensor.dtype);
    return tensor.y_strides.token == tensor.heads * head_bytes &&
           (job.batch == 1 || tensor.y_strides.batch == job.tokens * tensor.y_strides.token);
  }

  // Whether each piece of the job gathers its own tokens of a tensor that arrived in pieces.
  // Parity's scalar loops need whole tensors instead.
  static bool Gathers(const RotaryJob& job, const RotaryTensor& tensor) {
    return !tensor.pieces.empty() && !job.plan->parity.has_value() &&
           TokensAreContiguous(job, tensor);
  }

  // Gathers the tensors that pieces cannot gather, before the job is split.
  static void GatherWhole(const RotaryJob& job) {
    for (const RotaryTensor& tensor : job.tensors) {
      if (tensor.pieces.empty() || Gathers(job, tensor)) continue;
      const int64_t bytes =
          job.batch * job.tokens * tensor.heads * job.plan->spec.head_dim * SizeOf(tensor.dtype);
      PieceReader(tensor.pieces, 0).Read(bytes, tensor.y);
    }
  }

  void RunEncode(const EncodeJob& job, int64_t first, int64_t count) const {
    const Plan& plan = *job.plan;
    if (plan.parity.has_value()) return reference::EncodeParity(job, first, count);
    EncodeArgs args;
    args.table = &plan.table;
    args.axes = plan.spec.axes;
    args.layout = &LayoutOf(job);
    args.amplitude = plan.amplitude;
    args.xpos = XposOf(plan);
    args.dtype = job.dtype;
    args.out_row_bytes = job.out_row_bytes;
    args.add_to_row_bytes = job.add_to_row_bytes;
    args.embedding_scale = job.embedding_scale;
    args.stream = job.positions->count() * job.out_row_bytes > stream_bytes_;
    args.rounds_to_bfloat16 = options_.rounds_to_bfloat16;
    args.scratch = ThreadScratch().Get(EncodeScratchBytes(plan.table, args.layout->width));
    PositionRoom<kEncodeTile * kMaxAxes> positions;
    args.positions = positions.data();
    for (int64_t done = 0; done < count; done += args.rows) {
      args.rows = std::min(kEncodeTile, count - done);
      const int64_t row = first + done;
      ReadPositions(*job.positions, row, args.rows, positions.data());
      args.out = job.out + row * job.out_row_bytes;
      if (job.add_to != nullptr) args.add_to = job.add_to + row * job.add_to_row_bytes;
      encode_(args);
    }
    if (args.stream) hwy::FlushStream();  // for the threads that read the output
  }

  void RunRotary(const RotaryJob& job, int64_t first, int64_t count) const {
    const Plan& plan = *job.plan;
    if (plan.parity.has_value()) return reference::RotateParity(job, first, count);
    RotaryArgs args = RotaryArgsOf(plan, job.is_delta() ? job.from_plan : nullptr);
    args.inverse = job.inverse;
    args.amplitude = AmplitudeOf(job);
    args.pairing_in = PairingIn(job);
    args.pairing_out = PairingOut(job);
    const int64_t bytes = RowBytes(job) * job.batch * job.tokens;
    args.stream = bytes > stream_bytes_;  // does not matter to tensors that are rotated in place
    args.fetch = bytes > 2 * stream_bytes_ && pages_in_turns_ > 0;
    args.pages_in_turns = pages_in_turns_;
    args.scratch = ThreadScratch().Get(RotaryScratchBytes(args));
    PositionRoom<64 * kMaxAxes> positions, from_positions;
    args.positions = positions.data();
    args.from_positions = from_positions.data();
    std::vector<RotaryArgs::Tensor> tensors(job.tensors.size());
    std::vector<PieceReader> readers;  // of the tensors that are gathered tile by tile, in order
    for (const RotaryTensor& tensor : job.tensors) {
      if (Gathers(job, tensor)) readers.emplace_back(tensor.pieces, first * tensor.y_strides.token);
    }
    args.tensors = tensors.data();
    args.tensor_count = static_cast<int64_t>(tensors.size());
    const int64_t tile = RotaryTile(args.frequency_heads * args.pairs);
    for (int64_t done = 0; done < count; done += args.tokens) {
      const int64_t b = (first + done) / job.tokens;
      const int64_t t = (first + done) % job.tokens;
      args.tokens = std::min({tile, count - done, job.tokens - t});
      const auto read = [&](const PositionSource& source, Position* out) {
        ReadPositions(source, source.batch == 1 ? t : b * job.tokens + t, args.tokens, out);
      };
      read(*job.positions, positions.data());
      if (job.is_delta()) read(*job.from_positions, from_positions.data());
      auto reader = readers.begin();
      for (size_t i = 0; i < tensors.size(); ++i) {
        const RotaryTensor& tensor = job.tensors[i];
        tensors[i] = At(tensor, b, t);
        if (Gathers(job, tensor))
          (reader++)->Read(args.tokens * tensor.y_strides.token, tensors[i].y);
      }
      rotary_(args);
    }
  }

  // The tensor from token t of batch entry b on. Gathered pieces are in y, so those rotate in
  // place.
  static RotaryArgs::Tensor At(const RotaryTensor& tensor, int64_t b, int64_t t) {
    const RotaryStrides& xs = tensor.pieces.empty() ? tensor.x_strides : tensor.y_strides;
    const RotaryStrides& ys = tensor.y_strides;
    const std::byte* x = tensor.pieces.empty() ? tensor.x : tensor.y;
    const bool paged = tensor.y_offsets != nullptr;
    return {
        tensor.dtype,     tensor.heads,   x + b * xs.batch + t * xs.token,
        xs.token,         xs.head,        paged ? tensor.y : tensor.y + b * ys.batch + t * ys.token,
        ys.token,         ys.head,        tensor.float8,
        tensor.inv_scale, tensor.rotates, paged ? tensor.y_offsets + t : nullptr};
  }

  const CpuBackendOptions options_;
  const EncodeKernel encode_;
  const RotaryKernel rotary_;
  const int64_t stream_bytes_;
  const int64_t pages_in_turns_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace phasor::cpu
