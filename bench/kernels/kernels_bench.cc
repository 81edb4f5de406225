// SPDX-License-Identifier: Apache-2.0
// bench_kernels: compares Encode and ApplyRoPE on the CPU with memset, memcpy and memmove of the
// same bytes, and writes to paged caches with separate passes.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/kernels/copier.h"
#include "bench/kernels/jobs.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/base/cores.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kernels.h"
#include "kernels/request/paged_cache.h"

namespace phasor::bench {
namespace {

constexpr double kGiga = 1e9;

// The size of data that does not fit into the last-level cache, whatever ran before.
int64_t DramBytes() {
  const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

// One instruction set of this machine.
struct Isa {
  std::string name;              // what shapes say; empty: the one that Phasor uses here
  std::unique_ptr<Backend> one;  // thread
  std::unique_ptr<Backend> all;  // cores

  bool first() const { return name.empty(); }
};

std::vector<Isa> Isas() {
  std::vector<Isa> isas;
  for (const cpu::Target target : cpu::RunnableTargets()) {
    if (target == cpu::Target::kScalar && !isas.empty()) continue;  // for machines without others
    const auto threads = [&](int count) {
      return cpu::MakeCpuBackend({.target = target, .threads = count});
    };
    isas.push_back({isas.empty() ? "" : absl::StrCat(" ", std::string(cpu::Name(target))),
                    threads(1), threads(UsableCores())});
  }
  return isas;
}

struct Bench {
  const Arguments arguments;
  Report* report;
  const std::vector<Isa>* isas;
  Copier copy_one{1};
  Copier copy_all{isas->front().all->threads()};

  Copier& CopierOf(const Backend& backend) { return backend.threads() == 1 ? copy_one : copy_all; }
};

std::string_view CacheName(Cache cache, int64_t working_set) {
  if (working_set >= DramBytes()) return "DRAM";
  return cache == Cache::kWarm ? "warm" : "cold";
}

// `memset_bytes`: memset fills another buffer of this size; 0: it fills the output itself.
void BenchEncode(Bench& bench, const EncodeCase& c, const Isa& isa, Backend& backend,
                 int64_t memset_bytes, std::optional<double> target) {
  const Memory out(c.bytes());
  const EncodeRun encode(c);
  encode.Run(backend, out.data());
  CheckEncode(c, out.data(), bench.arguments.quick);

  const Memory other(std::max<int64_t>(memset_bytes, 1));
  const Memory& filled = memset_bytes > 0 ? other : out;
  Copier& copier = bench.CopierOf(backend);
  EncodeArithmetic arithmetic(c, *isa.one, backend.threads());
  const auto seconds = MedianSeconds(
      bench.arguments,
      {{[&] { encode.Run(backend, out.data()); }},
       // The value changes with each run, so that every write has an effect.
       {[&, value = 1]() mutable { copier.Fill(filled.data(), value++, filled.size()); }},
       {[&] { arithmetic.Run(); }}});
  Row row{.name = "encode",
          .shape = absl::StrCat(c.rows, "x", c.dim, " ", c.preset, isa.name),
          .dtype = std::string(Name(c.dtype)),
          .threads = backend.threads(),
          .cache = std::string(CacheName(Cache::kWarm, c.bytes())),
          .unit = "GB/s",
          .baseline = memset_bytes > 0 ? "memset of 256 MiB" : "memset"};
  const auto rate = [](int64_t bytes, double s) { return static_cast<double>(bytes) / s / kGiga; };
  const double memset = rate(filled.size(), seconds[1]);
  if (target.has_value()) row.most = rate(c.bytes(), seconds[2]) / memset;
  bench.report->Add(RateRow(std::move(row), rate(c.bytes(), seconds[0]), memset, target));
}

void BenchEncodes(Bench& bench, const Isa& isa) {
  using enum Dtype;
  constexpr int64_t kBig = int64_t{256} << 20;
  for (const std::string preset : {"transformer", "timestep-sin-cos"}) {
    for (const Dtype dtype : {kFloat32, kBFloat16, kFloat16}) {
      const bool f32 = dtype == kFloat32;
      const EncodeCase table{preset, 131072, 128, dtype};
      BenchEncode(bench, table, isa, *isa.one, 0, f32 ? 0.85 : 0.8);
      const bool cores = isa.all->threads() > 1;
      if (cores) BenchEncode(bench, table, isa, *isa.all, 0, f32 ? 0.9 : 0.8);
      if (!isa.first()) continue;
      const EncodeCase cached{preset, 4096, 256, dtype};
      const EncodeCase wide{preset, 4096, 1536, dtype};
      BenchEncode(bench, cached, isa, *isa.one, kBig, f32 ? 0.9 : 0.8);
      BenchEncode(bench, wide, isa, *isa.one, kBig, {});
      if (!cores) continue;
      BenchEncode(bench, cached, isa, *isa.all, kBig, {});
      BenchEncode(bench, wide, isa, *isa.all, wide.bytes() < DramBytes() ? kBig : 0, {});
    }
  }
}

// Decoding reads anywhere in the context; prefill reads it in order.
std::vector<int64_t> PositionsOf(int64_t tokens) {
  constexpr int64_t kDecode = 256;
  std::vector<int64_t> positions;
  std::minstd_rand generator(7);
  std::uniform_int_distribution<int64_t> anywhere(0, 131071);
  for (int64_t t = 0; t < tokens; ++t) {
    positions.push_back(tokens <= kDecode ? anywhere(generator) : t);
  }
  return positions;
}

void BenchRope(Bench& bench, const RopeCase& c, const Isa& isa, Backend& backend, bool in_place,
               Cache cache, std::optional<double> target) {
  const Memory x(c.bytes());
  const Memory y(c.bytes());
  FillNormal(c.dtype, x);
  std::memcpy(y.data(), x.data(), static_cast<size_t>(x.size()));
  const RopeRun rope(c);
  rope.Run(backend, in_place ? y.data() : x.data(), y.data());
  CheckRope(c, x.data(), y.data(), bench.arguments.quick);

  // The copy writes fresh values to y, so that repeated rotations in place do not degrade them.
  Copier& copier = bench.CopierOf(backend);
  const Candidate subject{[&] { rope.Run(backend, in_place ? y.data() : x.data(), y.data()); },
                          cache};
  const Candidate copy{[&] { copier.Copy(x.data(), y.data(), x.size()); }, cache};
  const auto seconds = MedianSeconds(bench.arguments, {subject, copy});

  const double moved = 2.0 * static_cast<double>(c.bytes());  // read and written
  Row row{.name = in_place ? "rope_inplace" : "rope_outofplace",
          .shape = absl::StrCat("T=", c.tokens(), " ", c.q_heads, "q+", c.k_heads, "k x",
                                c.head_dim, " ", c.preset.substr(5), isa.name),
          .dtype = std::string(Name(c.dtype)),
          .threads = backend.threads(),
          .cache = std::string(CacheName(cache, c.bytes())),
          .unit = "GB/s",
          .baseline = in_place ? "memmove" : "memcpy"};
  bench.report->Add(
      RateRow(std::move(row), moved / seconds[0] / kGiga, moved / seconds[1] / kGiga, target));
}

void BenchRopes(Bench& bench, const Isa& isa) {
  using enum Dtype;
  for (const std::string preset : {"rope-half-split", "rope-interleaved"}) {
    for (const Dtype dtype : {kFloat32, kBFloat16, kFloat16}) {
      for (const int64_t tokens : {1, 32, 512, 4096, 32768}) {
        std::optional<double> in_place, out_of_place;
        if (tokens == 32768 && dtype != kFloat16) in_place = 1.0;
        if (tokens == 32768 && dtype == kFloat32) out_of_place = 0.9;
        if (!isa.first() && !in_place.has_value()) continue;
        const RopeCase c{.preset = preset, .dtype = dtype, .positions = PositionsOf(tokens)};
        BenchRope(bench, c, isa, *isa.all, true, Cache::kWarm, in_place);
        BenchRope(bench, c, isa, *isa.all, false, Cache::kWarm, out_of_place);
        if (!isa.first()) continue;
        if (tokens <= 32) BenchRope(bench, c, isa, *isa.all, true, Cache::kCold, {});
        if (isa.all->threads() > 1) BenchRope(bench, c, isa, *isa.one, true, Cache::kWarm, {});
      }
    }
  }
}

// bfloat16 keys and values that go to the pages of a cache of `type`, tokens in random slots.
PreparedRope PreparePages(const std::vector<int64_t>& positions, Dtype type) {
  constexpr int64_t kHeads = 8, kHeadDim = 128, kPageSize = 16;
  const auto tokens = static_cast<int64_t>(positions.size());
  const TensorDesc rows{Dtype::kBFloat16, {tokens, kHeads, kHeadDim}, {}};
  const TensorDesc cache{
      type, {(tokens + kPageSize - 1) / kPageSize, kPageSize, kHeads, kHeadDim}, {}};
  RopeRequest request;
  request.spec.preset = "rope-half-split";
  request.spec.head_dim = kHeadDim;
  request.positions = PositionTensor{Dtype::kInt64, {tokens}};
  request.tensors = {rows};
  request.paged_cache = PagedCache{.values = rows,
                                   .key_cache = cache,
                                   .value_cache = cache,
                                   .slot_mapping = {Dtype::kInt64, {tokens}, {}}};
  auto prepared = PrepareRope(request, CompilePlan, "item");
  if (!prepared.ok()) Die(prepared.status().ToString());
  prepared->positions.data = reinterpret_cast<const std::byte*>(positions.data());
  prepared->positions.data_bytes = tokens * SizeOf(Dtype::kInt64);
  std::vector<int64_t> slots(positions.size());
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::minstd_rand(3));
  const absl::Status set =
      SetSlots(reinterpret_cast<const std::byte*>(slots.data()), "item", *prepared);
  if (!set.ok()) Die(set.ToString());
  return *std::move(prepared);
}

// Compares one job that rotates keys and writes them and the values to a cache with two passes: a
// rotation, then a copy of its result to the cache.
void BenchPagedWrite(Bench& bench, Dtype type, int64_t tokens) {
  const std::vector<int64_t> positions = PositionsOf(tokens);
  const PreparedRope prepared = PreparePages(positions, type);
  const int64_t row_bytes = prepared.tensors[0].input_bytes;
  const int64_t cache_bytes = prepared.tensors[0].output_bytes;
  const Memory rows(3 * row_bytes), cache(2 * cache_bytes), want(2 * cache_bytes);
  FillNormal(Dtype::kBFloat16, rows);
  const std::byte* const x[] = {rows.data(), rows.data() + row_bytes};
  std::byte* const turned = rows.data() + 2 * row_bytes;
  const auto job_to = [&](std::byte* pages) {
    std::byte* const y[] = {pages, pages + cache_bytes};
    return MakeRotaryJob(prepared, x, y);
  };
  RotaryJob turn = job_to(cache.data()), append = turn;
  RotaryTensor& keys = turn.tensors[0];
  keys = {keys.dtype, keys.heads, keys.x, keys.x_strides, turned, keys.x_strides};
  turn.tensors.resize(1);
  append.tensors[0].x = turned;
  append.tensors[0].rotates = false;
  const Job fused[] = {job_to(cache.data())}, apart[] = {turn, append};
  const auto run = [](Backend& backend, absl::Span<const Job> jobs) {
    if (const absl::Status ran = backend.Run(jobs); !ran.ok()) Die(ran.ToString());
  };
  run(*bench.isas->front().all, fused);
  const auto reference = MakeBackend({.name = "reference"});
  if (!reference.ok()) Die(reference.status().ToString());
  run(**reference, {job_to(want.data())});
  if (std::memcmp(cache.data(), want.data(), static_cast<size_t>(cache.size())) != 0) {
    Die("pages differ from the reference");
  }
  const auto seconds =
      MedianSeconds(bench.arguments, {{[&] { run(*bench.isas->front().all, fused); }},
                                      {[&] { run(*bench.isas->front().all, apart); }}});
  const double moved = static_cast<double>(2 * (row_bytes + cache_bytes));
  Row row{.name = "rope_paged",
          .shape = absl::StrCat("T=", tokens, " 8k+8v x128 half-split"),
          .dtype = absl::StrCat("BFLOAT16 to ", std::string(Name(type))),
          .threads = bench.isas->front().all->threads(),
          .cache = std::string(CacheName(Cache::kWarm, rows.size())),
          .unit = "GB/s",
          .baseline = "rotation, then write"};
  bench.report->Add(
      RateRow(std::move(row), moved / seconds[0] / kGiga, moved / seconds[1] / kGiga));
}

void BenchPagedWrites(Bench& bench) {
  for (const Dtype type : {Dtype::kBFloat16, Dtype::kFloat8E4M3, Dtype::kFloat8E5M2}) {
    for (const int64_t tokens : {32, 4096, 32768}) BenchPagedWrite(bench, type, tokens);
  }
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  const std::vector<Isa> isas = Isas();
  Report report("bench_kernels", arguments, isas.front().all->target());
  Bench bench{.arguments = arguments, .report = &report, .isas = &isas};
  for (const Isa& isa : isas) {
    BenchEncodes(bench, isa);
    BenchRopes(bench, isa);
  }
  BenchPagedWrites(bench);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
