// SPDX-License-Identifier: Apache-2.0
// bench_move_keys: compares moves of cached keys with memcpy of the same bytes by the same threads,
// and one call for all layers and runs with a call for each.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/request/key_layouts.h"
#include "kernels/request/move_keys.h"

namespace phasor::bench {
namespace {

// The keys of Llama-3.1-8B, in pages of 16 slots.
constexpr int64_t kLayers = 32, kHeads = 8, kHeadDim = 128, kPageSize = 16;

struct Case {
  KeyCode code = KeyCode::kBFloat16;
  std::string layout = "nhd";
  MoveMode mode = MoveMode::kCopyOnWrite;
  int64_t tokens = 0;
  int64_t hadamard = 0;
  double target = 0;
  Pages memory = Pages::kHuge;  // of the pool, and of what memcpy reads and writes

  int64_t pages() const { return (tokens + kPageSize - 1) / kPageSize; }
};

KeyLayout LayoutOf(const Case& c) {
  // Twice the pages: the first half is read, the second written.
  KeyLayout layout{.name = c.layout,
                   .code = c.code,
                   .pages = 2 * c.pages(),
                   .page_size = kPageSize,
                   .heads = kHeads,
                   .head_dim = kHeadDim,
                   .layers = kLayers,
                   .hadamard = c.hadamard};
  return layout;
}

Spec TheSpec() {
  Spec spec;
  spec.preset = "rope-half-split";
  spec.rope_theta = 500000;
  return spec;
}

// Pages in random order, as an engine that has run for a while hands them out.
std::vector<int64_t> Table(int64_t pages, int64_t first) {
  std::vector<int64_t> table(static_cast<size_t>(pages));
  std::iota(table.begin(), table.end(), first);
  std::shuffle(table.begin(), table.end(), std::minstd_rand(7));
  return table;
}

MoveRequest RequestOf(const Case& c, int64_t pool_bytes) {
  MoveRequest request;
  request.mode = c.mode;
  request.pools = {pool_bytes};
  request.layouts = {LayoutOf(c)};
  request.specs = {{.spec = TheSpec()}};
  for (int64_t l = 0; l < kLayers; ++l) {
    request.layers.push_back({.spec = 0, .layer = l, .copy_values = false});
  }
  KeyRun run{.block_table = Table(c.pages(), 0), .count = c.tokens, .from = 0, .to = 4096};
  if (c.mode == MoveMode::kCopyOnWrite) run.to_block_table = Table(c.pages(), c.pages());
  request.groups = {{.runs = {run}}};
  return request;
}

PreparedMove Prepare(const MoveRequest& request) {
  auto prepared = PrepareMove(request, CompilePlan, "item");
  if (!prepared.ok()) Die(prepared.status().ToString());
  return *std::move(prepared);
}

void Run(Backend& backend, const PreparedMove& move, std::byte* pool) {
  std::byte* const pools[] = {pool};
  const Job jobs[] = {MakeMoveJob(move, pools, nullptr)};
  if (const absl::Status ran = backend.Run(jobs); !ran.ok()) Die(ran.ToString());
}

int64_t PoolBytes(const Case& c) {
  const auto layout = ResolveKeyLayout(LayoutOf(c), "layout");
  if (!layout.ok()) Die(layout.status().ToString());
  return std::max(layout->layer_bytes * kLayers, layout->keys.page_bytes * layout->keys.pages);
}

// The whole pool: bytes that are ordinary numbers in every code.
void Fill(KeyCode code, const Memory& pool) {
  if (code == KeyCode::kBFloat16) return FillNormal(Dtype::kBFloat16, pool);
  if (code == KeyCode::kFloat16) return FillNormal(Dtype::kFloat16, pool);
  if (code == KeyCode::kFloat32) return FillNormal(Dtype::kFloat32, pool);
  std::minstd_rand random(5);
  for (int64_t i = 0; i < pool.size(); ++i) pool.data()[i] = std::byte(random() >> 8 & 0x3F);
}

// Does what scalar code does, on fewer tokens.
void Check(Case c, Backend& backend) {
  c.tokens = std::min<int64_t>(c.tokens, 64);
  const Memory got(PoolBytes(c)), want(got.size());
  Fill(c.code, got);
  std::memcpy(want.data(), got.data(), static_cast<size_t>(got.size()));
  const PreparedMove move = Prepare(RequestOf(c, got.size()));
  const auto reference = MakeBackend({.name = "reference"});
  if (!reference.ok()) Die(reference.status().ToString());
  Run(backend, move, got.data());
  Run(**reference, move, want.data());
  if (std::memcmp(got.data(), want.data(), static_cast<size_t>(got.size())) != 0) {
    Die("moved keys differ from the reference");
  }
}

void BenchMove(const Arguments& arguments, Report* report, Backend& backend,
               cpu::ThreadPool* copiers, const Case& c) {
  Check(c, backend);
  const Memory pool(PoolBytes(c), c.memory);
  Fill(c.code, pool);
  const PreparedMove move = Prepare(RequestOf(c, pool.size()));
  const Memory from(move.moved_bytes, c.memory), to(move.moved_bytes, c.memory);
  const auto copy = [&] {
    const int64_t pieces = copiers->threads();
    copiers->ParallelFor(pieces, [&](int64_t i) {
      const int64_t begin = from.size() * i / pieces, end = from.size() * (i + 1) / pieces;
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  };
  const auto seconds = MedianSeconds(
      arguments, {{[&] { Run(backend, move, pool.data()); }, Cache::kAny}, {copy, Cache::kAny}});
  const double bytes = 2.0 * static_cast<double>(move.moved_bytes);
  Row row{.name = c.mode == MoveMode::kMove ? "move_in_place" : "move_copy",
          .shape = absl::StrCat("T=", c.tokens, " L=", kLayers, " H=", kHeads, " ", c.layout,
                                c.hadamard > 0 ? " Hadamard" : "",
                                c.memory == Pages::kHuge ? "" : ", pages of 4 KiB"),
          .dtype = std::string(Name(c.code)),
          .threads = backend.threads(),
          .unit = "GB/s",
          .baseline = "memcpy"};
  report->Add(RateRow(std::move(row), bytes / seconds[0] / 1e9, bytes / seconds[1] / 1e9,
                      c.target > 0 ? std::optional(c.target) : std::nullopt));
}

// One call for all layers and runs against a call for each layer and run. Both prepare their
// requests; plans are at hand, as in a server's cache.
void BenchCalls(const Arguments& arguments, Report* report, Backend& backend, int64_t run_tokens,
                std::optional<double> target) {
  constexpr int64_t kRuns = 64;
  const Case c{.mode = MoveMode::kMove, .tokens = kRuns * kPageSize};
  const Memory pool(PoolBytes(c));
  Fill(c.code, pool);
  MoveRequest whole = RequestOf(c, pool.size());
  whole.groups[0].runs.clear();
  for (int64_t r = 0; r < kRuns; ++r) {
    whole.groups[0].runs.push_back(
        {.block_table = {r}, .count = run_tokens, .from = 100 * r, .to = 100 * r + 7});
  }
  std::vector<MoveRequest> single;
  for (const KeyLayer& layer : whole.layers) {
    for (const KeyRun& run : whole.groups[0].runs) {
      MoveRequest request = whole;
      request.layers = {layer};
      request.groups = {{.runs = {run}}};
      single.push_back(std::move(request));
    }
  }
  const PreparedMove known = Prepare(whole);
  const auto plans = [&](const ResolvedSpec&) -> absl::StatusOr<std::shared_ptr<const Plan>> {
    return known.plans[0];
  };
  const auto call = [&](const MoveRequest& request) {
    auto move = PrepareMove(request, plans, "item");
    if (!move.ok()) Die(move.status().ToString());
    Run(backend, *move, pool.data());
  };
  const auto seconds = MedianSeconds(arguments, {{[&] { call(whole); }}, {[&] {
                                                   for (const auto& request : single) call(request);
                                                 }}});
  Row row{.name = "one_call",
          .shape = absl::StrCat("L=", kLayers, ", ", kRuns, " runs of ", run_tokens),
          .dtype = std::string(Name(c.code)),
          .threads = backend.threads(),
          .unit = "us",
          .baseline = "a call for each layer and run"};
  report->Add(CostRow(std::move(row), seconds[0] * 1e6, seconds[1] * 1e6, target));
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  auto one = MakeBackend({.name = "cpu", .threads = 1});
  auto all = MakeBackend({.name = "cpu", .threads = 0});
  if (!one.ok()) Die(one.status().ToString());
  if (!all.ok()) Die(all.status().ToString());
  Report report("bench_move_keys", arguments, (*all)->target());
  cpu::ThreadPool copy_one(1), copy_all((*all)->threads());
  const int64_t tokens = arguments.quick ? 256 : 8192;
  std::vector<Case> cases;
  for (const MoveMode mode : {MoveMode::kCopyOnWrite, MoveMode::kMove}) {
    for (const KeyCode code : kKeyCodes) {
      if (code == KeyCode::kInt8) continue;  // with the layout that has its scales, below
      const bool wide = UnitBytes(code) > 1 && !IsBlockCode(code);
      const bool byte = code == KeyCode::kFloat8E4M3 || code == KeyCode::kFloat8E5M2;
      const double target = wide ? 0.9 : byte || code == KeyCode::kQ8_0 ? 0.5 : 0;
      cases.push_back({.code = code, .mode = mode, .tokens = tokens, .target = target});
      if (target == 0) continue;
      cases.push_back(cases.back());
      cases.back().memory = Pages::kOrdinary;
    }
    cases.push_back(
        {.code = KeyCode::kInt8, .layout = "vllm-per-token-head", .mode = mode, .tokens = tokens});
    cases.push_back({.code = KeyCode::kQ8_0, .mode = mode, .tokens = tokens, .hadamard = 128});
    for (const std::string layout : {"vllm-lbnhc", "vllm-lbhnc", "vllm-blhnc", "vllm-paged-x"}) {
      cases.push_back({.layout = layout, .mode = mode, .tokens = tokens});
    }
  }
  for (const Case& c : cases) {
    BenchMove(arguments, &report, **all, &copy_all, c);
    if (c.layout != "nhd") continue;
    Case untargeted = c;
    untargeted.target = 0;
    BenchMove(arguments, &report, **one, &copy_one, untargeted);
  }
  for (const int64_t run_tokens : {1, 4, 16}) {
    BenchCalls(arguments, &report, **all, run_tokens,
               run_tokens <= 4 ? std::optional(5.0) : std::nullopt);
  }
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
