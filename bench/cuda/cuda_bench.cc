// SPDX-License-Identifier: Apache-2.0
// bench_cuda [OUT.json] [--quick] [--dry] [--card]: compares the kernels on a GPU with copies and
// fills of the same bytes, moves of keys among them, merged one-token requests with one launch
// each, and tensors in host memory with the link. --dry runs it on the host. --card only prints the
// device. Exit status 3: no CUDA device.
#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/cuda/device.h"
#include "bench/cuda/host_resident.h"
#include "bench/cuda/staged_jobs.h"
#include "bench/harness.h"
#include "bench/kernels/jobs.h"
#include "kernels/backends.h"
#include "kernels/request/key_layouts.h"
#include "kernels/request/move_keys.h"

namespace phasor::bench {
namespace {

constexpr int kNoDevice = 3;
constexpr int kLeastSteps = 20;  // of a graph: they share the cost of starting it
constexpr int kMostBuffers = 512;
constexpr double kMicro = 1e6;
// Of larger outputs, only the ends are compared with the reference.
constexpr int64_t kCheckedBytes = int64_t{64} << 20;

// The median seconds of each program. Each round runs each once, starting with another one each
// time.
std::vector<double> MedianOf(const std::vector<std::unique_ptr<Program>>& programs, int rounds) {
  std::vector<std::vector<double>> seconds(programs.size());
  for (const auto& program : programs) program->Run();
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const size_t turn = (i + static_cast<size_t>(round)) % programs.size();
      seconds[turn].push_back(programs[turn]->Run());
    }
  }
  std::vector<double> medians;
  for (auto& s : seconds) medians.push_back(Median(std::move(s)));
  return medians;
}

struct Bench {
  Device& device;
  Report& report;
  bool quick;

  int rounds() const { return quick ? 2 : 51; }
  // --quick has the same rows with fewer tokens.
  int64_t Shortened(int64_t rows) const { return quick ? std::min<int64_t>(rows, 16) : rows; }
};

// The number of buffers that one program goes through so that the L2 cache contains what `cache`
// says. 0: no number does.
int BuffersFor(const Bench& bench, Cache cache, int64_t bytes) {
  if (cache == Cache::kWarm) return 1;
  const int64_t wanted = 2 * bench.device.l2_bytes() / bytes + 1;
  return wanted <= kMostBuffers ? static_cast<int>(wanted) : 0;
}

std::string CacheName(const Bench& bench, Cache cache, int64_t bytes) {
  if (bytes >= 2 * bench.device.l2_bytes()) return "DRAM";
  return cache == Cache::kWarm ? "warm" : "cold";
}

std::vector<Step> Repeated(const std::vector<Step>& steps) {
  std::vector<Step> repeated = steps;
  while (repeated.size() < kLeastSteps) repeated.insert(repeated.end(), steps.begin(), steps.end());
  return repeated;
}

// ApplyRoPE ------------------------------------------------------------------------------------

std::string ShapeOf(const RopeCase& c) {
  std::string shape =
      absl::StrCat("T=", c.tokens(), " ", c.q_heads, "q+", c.k_heads, "k x", c.head_dim);
  if (c.rotary_dim > 0) absl::StrAppend(&shape, " R=", c.rotary_dim);
  return absl::StrCat(shape, " ", c.preset);
}

// Decoding reads anywhere in the context; prefill reads it in order.
std::vector<int64_t> PositionsOf(int64_t tokens, int64_t axes = 1) {
  constexpr int64_t kDecode = 256;
  std::vector<int64_t> positions(static_cast<size_t>(tokens * axes));
  std::iota(positions.begin(), positions.end(), 0);
  if (tokens > kDecode) return positions;
  std::minstd_rand generator(7);
  std::uniform_int_distribution<int64_t> anywhere(0, 131071);
  for (int64_t& position : positions) position = anywhere(generator);
  return positions;
}

// Copies that read, write and touch what rotations in place of these buffers do: each buffer over
// another one, or the halves of a single one there and back.
std::vector<Step> CopiesWithin(std::byte* first, int64_t apart, int buffers, int64_t bytes) {
  if (buffers == 1) {
    const int64_t half = bytes / 2;
    return {DeviceCopy{first + half, first, half}, DeviceCopy{first, first + half, half}};
  }
  std::vector<Step> copies;
  for (int i = 0; i < buffers; ++i) {
    std::byte* const to = first + (i + buffers / 2) % buffers * apart;
    copies.push_back(DeviceCopy{to, first + i * apart, bytes});
  }
  return copies;
}

void BenchRope(Bench& bench, const RopeCase& c, bool in_place, Cache cache,
               std::optional<double> target) {
  Device& device = bench.device;
  const int64_t touched = in_place ? c.bytes() : 2 * c.bytes();
  const int buffers = BuffersFor(bench, cache, touched);
  if (buffers == 0) return;
  const int64_t apart = cuda::AlignUp(c.bytes(), 256);
  const Memory x(c.bytes());
  FillNormal(c.dtype, x);
  const DeviceMemory from(device, buffers * apart), to(device, buffers * apart);
  const RopeRun rope(c);
  JobRecorder recorder;
  std::vector<Step> rotate, fill;
  for (int i = 0; i < buffers; ++i) {
    device.Upload(from.data() + i * apart, x.data(), x.size());
    std::byte* const y = to.data() + i * apart;
    rope.Run(recorder, in_place ? y : from.data() + i * apart, y);
    fill.push_back(DeviceCopy{y, from.data() + i * apart, c.bytes()});
  }
  std::vector<std::unique_ptr<StagedJobs>> staged;
  for (const Job& job : recorder.jobs()) {
    staged.push_back(std::make_unique<StagedJobs>(device, absl::MakeConstSpan(&job, 1)));
    for (const cuda::Launch& launch : staged.back()->launches()) rotate.push_back(launch);
  }
  device.Prepare(fill, Queueing::kTogether)->Run();
  device.Prepare(rotate, Queueing::kTogether)->Run();
  const Memory y(c.bytes());
  for (const int i : {0, buffers - 1}) {
    device.Download(y.data(), to.data() + i * apart, y.size());
    CheckRope(c, x.data(), y.data(), bench.quick || c.bytes() > kCheckedBytes);
  }

  const std::vector<Step> copy =
      in_place ? CopiesWithin(to.data(), apart, buffers, c.bytes()) : fill;
  const std::vector<Step> rotations = Repeated(rotate), copies = Repeated(copy);
  std::vector<std::unique_ptr<Program>> programs;
  programs.push_back(device.Prepare(rotations, Queueing::kTogether));
  programs.push_back(device.Prepare(copies, Queueing::kTogether));
  const std::vector<double> seconds = MedianOf(programs, bench.rounds());
  Row row{.name = in_place ? "rope_inplace" : "rope_outofplace",
          .shape = ShapeOf(c),
          .dtype = std::string(Name(c.dtype)),
          .threads = 0,
          .cache = CacheName(bench, cache, touched),
          .unit = "us",
          .baseline = "device copy"};
  const auto each = [&](double all, const std::vector<Step>& repeated, size_t once) {
    const size_t rotated = repeated.size() / once * static_cast<size_t>(buffers);
    return all * kMicro / static_cast<double>(rotated);
  };
  bench.report.Add(CostRow(std::move(row), each(seconds[0], rotations, rotate.size()),
                           each(seconds[1], copies, copy.size()), target));
}

// In place, warm and cold. The target applies to tensors larger than the cache.
void BenchRopeInPlace(Bench& bench, const RopeCase& c, std::optional<double> target = {}) {
  const bool dram = c.bytes() >= 2 * bench.device.l2_bytes();
  BenchRope(bench, c, true, Cache::kWarm, dram ? target : std::nullopt);
  if (!dram) BenchRope(bench, c, true, Cache::kCold, target);
}

void BenchRopes(Bench& bench) {
  using enum Dtype;
  const std::string half = "rope-half-split", interleaved = "rope-interleaved";
  for (const int64_t tokens : {1, 8, 64, 256, 1024, 4096, 8192, 32768, 131072}) {
    const RopeCase c{half, kBFloat16, 32, 8, 128, PositionsOf(bench.Shortened(tokens))};
    BenchRopeInPlace(bench, c, tokens >= 8192 ? std::optional(0.93) : std::nullopt);
  }
  for (const Dtype dtype : {kFloat16, kFloat32}) {
    for (const int64_t tokens : {64, 1024, 32768}) {
      BenchRopeInPlace(bench, {half, dtype, 32, 8, 128, PositionsOf(bench.Shortened(tokens))});
    }
  }
  const std::vector<int64_t> prefill = PositionsOf(bench.Shortened(8192));
  BenchRopeInPlace(bench, {interleaved, kBFloat16, 32, 8, 128, prefill});
  BenchRope(bench, {half, kBFloat16, 32, 8, 128, prefill}, false, Cache::kCold, {});
  BenchRope(bench, {half, kBFloat16, 32, 8, 128, prefill, 1, 64}, false, Cache::kCold, {});
  struct Heads {
    int64_t q, k, dim, rotary_dim;
  };
  // 70B on 8 cards; 70B; MHA; Gemma; MLA; heads of 80, 96 and 192 lanes; partial rotation.
  for (const Heads& h : {Heads{8, 1, 128, 0},
                         {64, 8, 128, 0},
                         {32, 32, 64, 0},
                         {16, 8, 256, 0},
                         {128, 1, 64, 0},
                         {16, 16, 80, 0},
                         {32, 8, 96, 0},
                         {32, 8, 192, 0},
                         {32, 8, 128, 64},
                         {16, 8, 256, 64}}) {
    BenchRopeInPlace(bench, {half, kBFloat16, h.q, h.k, h.dim, prefill, 1, h.rotary_dim});
  }
  const std::vector<int64_t> image = PositionsOf(bench.Shortened(4608), 3);
  BenchRopeInPlace(bench, {"flux", kBFloat16, 24, 24, 128, image, 3});
  const std::vector<int64_t> video = PositionsOf(bench.Shortened(8192), 3);
  BenchRopeInPlace(bench, {"qwen2-vl", kBFloat16, 28, 4, 128, video, 3});
}

// Encode ---------------------------------------------------------------------------------------

void BenchEncode(Bench& bench, const EncodeCase& c, std::optional<double> target) {
  Device& device = bench.device;
  const DeviceMemory out(device, c.bytes());
  const EncodeRun encode(c);
  JobRecorder recorder;
  encode.Run(recorder, out.data());
  const StagedJobs staged(device, recorder.jobs());
  const std::vector<Step> steps(staged.launches().begin(), staged.launches().end());
  device.Prepare(steps, Queueing::kTogether)->Run();
  const Memory host(c.bytes());
  device.Download(host.data(), out.data(), host.size());
  CheckEncode(c, host.data(), bench.quick);

  const std::vector<Step> encodings = Repeated(steps);
  const std::vector<Step> fills = Repeated({DeviceFill{out.data(), c.bytes()}});
  std::vector<std::unique_ptr<Program>> programs;
  programs.push_back(device.Prepare(encodings, Queueing::kTogether));
  programs.push_back(device.Prepare(fills, Queueing::kTogether));
  const std::vector<double> seconds = MedianOf(programs, bench.rounds());
  Row row{.name = "encode",
          .shape = absl::StrCat(c.rows, "x", c.dim, " ", c.preset),
          .dtype = std::string(Name(c.dtype)),
          .threads = 0,
          .cache = CacheName(bench, Cache::kWarm, c.bytes()),
          .unit = "us",
          .baseline = "device memset"};
  bench.report.Add(CostRow(std::move(row),
                           seconds[0] * kMicro / static_cast<double>(encodings.size()),
                           seconds[1] * kMicro / static_cast<double>(fills.size()), target));
}

void BenchEncodes(Bench& bench) {
  using enum Dtype;
  for (const Dtype dtype : {kFloat32, kBFloat16}) {
    const bool f32 = dtype == kFloat32;
    for (const std::string preset : {"transformer", "timestep-sin-cos"}) {
      BenchEncode(bench, {preset, bench.Shortened(131072), 128, dtype},
                  f32 ? std::optional(0.9) : std::nullopt);
      BenchEncode(bench, {preset, bench.Shortened(4096), 1536, dtype}, {});
      BenchEncode(bench, {preset, bench.Shortened(2048), 1024, dtype}, {});
    }
    for (const int64_t batch : {1, 64, 1024}) {
      BenchEncode(bench, {"timestep-sin-cos", bench.Shortened(batch), 320, dtype}, {});
    }
  }
}

// MoveKeys -------------------------------------------------------------------------------------

// All keys of Llama-3.1-8B for some tokens, in pages of 16 slots in random order, in place in one
// call, compared with a copy within the device that reads and writes as many bytes.
void BenchMove(Bench& bench, KeyCode code, int64_t tokens, const std::string& name) {
  constexpr int64_t kLayers = 32, kPageSize = 16;
  Device& device = bench.device;
  const KeyLayout layout{.name = name,
                         .code = code,
                         .pages = tokens / kPageSize,
                         .page_size = kPageSize,
                         .heads = 8,
                         .head_dim = 128};
  const auto resolved = ResolveKeyLayout(layout, "layout");
  if (!resolved.ok()) Die(resolved.status().ToString());
  const int64_t layer_bytes = resolved->layer_bytes;
  MoveRequest request;
  request.mode = MoveMode::kMove;
  request.pools = {kLayers * layer_bytes};
  request.layouts = {layout};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  for (int64_t l = 0; l < kLayers; ++l) {
    request.layers.push_back({.spec = 0, .place = {0, l * layer_bytes}});
  }
  KeyRun run{.count = tokens, .from = 0, .to = 4096};
  run.block_table.resize(static_cast<size_t>(layout.pages));
  std::iota(run.block_table.begin(), run.block_table.end(), 0);
  std::shuffle(run.block_table.begin(), run.block_table.end(), std::minstd_rand(7));
  request.groups = {{.runs = {run}}};
  const auto move = PrepareMove(request, CompilePlan, "item");
  if (!move.ok()) Die(move.status().ToString());

  const Memory keys(kLayers * layer_bytes), moved(keys.size());
  std::minstd_rand random(5);
  for (int64_t i = 0; i < keys.size(); ++i) keys.data()[i] = std::byte(random() >> 8 & 0x3F);
  const DeviceMemory pool(device, keys.size());
  device.Upload(pool.data(), keys.data(), keys.size());
  std::byte* const on_device[] = {pool.data()};
  const Job job = MakeMoveJob(*move, on_device, nullptr);
  const StagedJobs staged(device, absl::MakeConstSpan(&job, 1));
  const std::vector<Step> steps(staged.launches().begin(), staged.launches().end());
  device.Prepare(steps, Queueing::kTogether)->Run();
  if (keys.size() <= kCheckedBytes) {
    device.Download(moved.data(), pool.data(), moved.size());
    std::byte* const on_host[] = {keys.data()};
    const auto reference = MakeBackend({.name = "reference"});
    if (!reference.ok()) Die(reference.status().ToString());
    const absl::Status ran = (*reference)->Run({Job(MakeMoveJob(*move, on_host, nullptr))});
    if (!ran.ok()) Die(ran.ToString());
    if (std::memcmp(keys.data(), moved.data(), static_cast<size_t>(keys.size())) != 0) {
      Die("moved keys differ from the reference");
    }
  }
  const std::vector<Step> moves = Repeated(steps);
  const std::vector<Step> copies = Repeated(CopiesWithin(pool.data(), 0, 1, keys.size()));
  std::vector<std::unique_ptr<Program>> programs;
  programs.push_back(device.Prepare(moves, Queueing::kTogether));
  programs.push_back(device.Prepare(copies, Queueing::kTogether));
  const std::vector<double> seconds = MedianOf(programs, bench.rounds());
  Row row{.name = "move_keys",
          .shape = absl::StrCat("T=", tokens, " 32 layers of 8k x 128, ", name, ", ", steps.size(),
                                " launch"),
          .dtype = std::string(Name(code)),
          .threads = 0,
          .cache = CacheName(bench, Cache::kWarm, keys.size()),
          .unit = "us",
          .baseline = "device copy"};
  bench.report.Add(CostRow(std::move(row), seconds[0] * kMicro / static_cast<double>(moves.size()),
                           seconds[1] * kMicro * 2 / static_cast<double>(copies.size()),
                           std::nullopt));
}

void BenchMoves(Bench& bench) {
  for (const KeyCode code : {KeyCode::kBFloat16, KeyCode::kFloat8E4M3, KeyCode::kQ8_0}) {
    for (const int64_t tokens : {64, 1024, 8192}) {
      BenchMove(bench, code, bench.Shortened(tokens), "nhd");
    }
  }
  for (const KeyCode code : {KeyCode::kInt8, KeyCode::kFloat8E4M3}) {  // a scale for each row
    BenchMove(bench, code, bench.Shortened(8192), "vllm-per-token-head");
  }
}

// Requests of one token ------------------------------------------------------------------------

// All requests in one launch, compared with one launch each: what merging saves on the device.
void BenchMerged(Bench& bench) {
  constexpr int kRequests = 256;
  Device& device = bench.device;
  const std::vector<int64_t> positions = PositionsOf(kRequests);
  std::vector<RopeCase> cases;
  for (const int64_t position : positions) {
    cases.push_back({"rope-half-split", Dtype::kBFloat16, 32, 8, 128, {position}});
  }
  const int64_t bytes = cases[0].bytes();
  const Memory x(kRequests * bytes), y(kRequests * bytes);
  FillNormal(Dtype::kBFloat16, x);
  const DeviceMemory memory(device, x.size());
  std::vector<std::unique_ptr<RopeRun>> runs;
  JobRecorder recorder;
  for (int i = 0; i < kRequests; ++i) {
    runs.push_back(std::make_unique<RopeRun>(cases[static_cast<size_t>(i)]));
    runs.back()->Run(recorder, memory.data() + i * bytes, memory.data() + i * bytes);
  }
  const StagedJobs merged(device, recorder.jobs());
  std::vector<std::unique_ptr<StagedJobs>> each;
  std::vector<Step> together, apart;
  for (const cuda::Launch& launch : merged.launches()) together.push_back(launch);
  for (const Job& job : recorder.jobs()) {
    each.push_back(std::make_unique<StagedJobs>(device, absl::MakeConstSpan(&job, 1)));
    for (const cuda::Launch& launch : each.back()->launches()) apart.push_back(launch);
  }
  for (const std::vector<Step>& steps : {together, apart}) {
    device.Upload(memory.data(), x.data(), x.size());
    device.Prepare(steps, Queueing::kSeparately)->Run();
    device.Download(y.data(), memory.data(), y.size());
    for (int i = 0; i < kRequests; ++i) {
      CheckRope(cases[static_cast<size_t>(i)], x.data() + i * bytes, y.data() + i * bytes, false);
    }
  }
  for (const Queueing queueing : {Queueing::kSeparately, Queueing::kTogether}) {
    std::vector<std::unique_ptr<Program>> programs;
    programs.push_back(device.Prepare(together, queueing));
    programs.push_back(device.Prepare(apart, queueing));
    const std::vector<double> seconds = MedianOf(programs, bench.rounds());
    const bool graph = queueing == Queueing::kTogether;
    Row row{.name = "merged",
            .shape = absl::StrCat("256 x 1 token, ", together.size(), " launch"),
            .dtype = "BFLOAT16",
            .threads = 1,
            .cache = "warm",
            .unit = "calls/s",
            .baseline = absl::StrCat(apart.size(), graph ? " in a graph" : " launches")};
    bench.report.Add(RateRow(std::move(row), kRequests / seconds[0], kRequests / seconds[1],
                             graph ? std::nullopt : std::optional(20.0)));
  }
}

// Removes `flag` from the arguments. Returns whether it was there.
bool TakeFlag(std::vector<char*>& arguments, std::string_view flag) {
  return std::erase_if(arguments, [&](const char* a) { return a == flag; }) > 0;
}

int Main(int argc, char** argv) {
  std::vector<char*> rest(argv, argv + argc);
  const bool dry = TakeFlag(rest, "--dry"), card = TakeFlag(rest, "--card");
  const Arguments arguments = ParseArguments(static_cast<int>(rest.size()), rest.data());
  std::unique_ptr<Device> device;
  if (dry) {
    device = MakeDryDevice();
  } else {
    auto opened = OpenCudaDevice();
    if (!opened.ok()) {
      std::cerr << "bench_cuda: " << opened.status().message() << "; --dry runs on the host\n";
      return kNoDevice;
    }
    device = *std::move(opened);
  }
  if (card) {
    std::cout << device->name() << '\n';
    return 0;
  }
  Report report("bench_cuda", arguments, device->name());
  Bench bench{*device, report, arguments.quick};
  BenchRopes(bench);
  BenchEncodes(bench);
  BenchMoves(bench);
  BenchMerged(bench);
  BenchHostResident(*device, report, arguments);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
