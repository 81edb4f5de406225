// SPDX-License-Identifier: Apache-2.0
// Parses the command line, times candidates in rounds, prints rows and writes them as JSON.
#include "bench/harness.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "kernels/math/convert.h"

namespace phasor::bench {
namespace {

// More than any last-level cache holds.
constexpr size_t kEvictionBytes = size_t{256} << 20;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Fills the caches with unrelated data.
void EvictCaches() {
  static std::vector<uint64_t> other(kEvictionBytes / sizeof(uint64_t), 1);
  volatile uint64_t sink = std::accumulate(other.begin(), other.end(), uint64_t{0});
  (void)sink;
}

double SecondsPerRun(const Candidate& candidate, int repeats) {
  if (candidate.cache == Cache::kCold) EvictCaches();
  if (candidate.cache == Cache::kWarm) candidate.run();
  const double start = Now();
  for (int i = 0; i < repeats; ++i) candidate.run();
  return (Now() - start) / repeats;
}

std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (absl::StartsWith(line, "model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

bool IsMet(const Row& row) { return row.ratio >= row.wanted(); }

std::string Verdict(const Row& row) {
  if (!row.target.has_value()) return "";
  const std::string floor =
      row.most.has_value() ? absl::StrFormat(" (floor %.2f)", *row.most) : std::string();
  return absl::StrFormat(">= %.2f%s %s", *row.target, floor, IsMet(row) ? "met" : "MISS");
}

// The order of candidates in a round. Over 2 * n rounds each candidate follows each other one
// within a round equally often (Williams, 1949): what a run leaves in the caches, and how it leaves
// the allocators, slows down the next one.
std::vector<size_t> OrderOf(size_t round, size_t n) {
  std::vector<size_t> order;
  for (size_t i = 0; i < n; ++i) {
    const size_t zigzag = i % 2 == 1 ? (i + 1) / 2 : n - i / 2;  // 0, 1, n - 1, 2, n - 2, ...
    order.push_back((zigzag + round) % n);
  }
  if (round / n % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

Arguments ParseArguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      arguments.quick = true;
    } else if (argument == "--all") {
      arguments.all = true;
    } else if (!absl::StartsWith(argument, "-") && arguments.json_path.empty()) {
      arguments.json_path = argument;
    } else {
      std::fprintf(stderr, "usage: %s [OUT.json] [--quick] [--all]\n", argv[0]);
      std::exit(2);
    }
  }
  return arguments;
}

std::vector<std::vector<double>> RoundSeconds(const Arguments& arguments,
                                              absl::Span<const Candidate> candidates) {
  std::vector<int> repeats;
  for (const Candidate& candidate : candidates) {
    const double once = SecondsPerRun(candidate, 1);  // the first run also touches the memory
    const bool warm = candidate.cache == Cache::kWarm;
    const double wanted = arguments.round_seconds() / std::max(once, 1e-9);
    repeats.push_back(warm ? static_cast<int>(std::clamp(wanted, 1.0, 1e6)) : 1);
  }
  constexpr int kLeastRounds = 3;
  std::vector<std::vector<double>> seconds(candidates.size());
  double passed = 0;
  for (int round = 0; round < arguments.rounds(); ++round) {
    if (round >= kLeastRounds && passed > arguments.row_seconds) break;
    for (const size_t i : OrderOf(static_cast<size_t>(round), candidates.size())) {
      seconds[i].push_back(SecondsPerRun(candidates[i], repeats[i]));
      passed += seconds[i].back() * repeats[i];
    }
  }
  return seconds;
}

std::vector<double> MedianSeconds(const Arguments& arguments,
                                  absl::Span<const Candidate> candidates) {
  std::vector<double> medians;
  for (std::vector<double>& rounds : RoundSeconds(arguments, candidates)) {
    medians.push_back(Median(std::move(rounds)));
  }
  return medians;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double MedianRatio(absl::Span<const double> a, absl::Span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(std::move(ratios));
}

double MedianDifference(absl::Span<const double> a, absl::Span<const double> b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  return Median(std::move(differences));
}

Row RateRow(Row row, double value, double baseline_value, std::optional<double> target) {
  row.value = value;
  row.baseline_value = baseline_value;
  row.ratio = value / baseline_value;
  row.target = target;
  return row;
}

Row CostRow(Row row, double value, double baseline_value, std::optional<double> target) {
  row = RateRow(std::move(row), value, baseline_value, target);
  row.ratio = baseline_value / value;
  return row;
}

Report::Report(std::string title, Arguments arguments, std::string isa)
    : arguments_(std::move(arguments)), isa_(std::move(isa)) {
  absl::PrintF("%s on %s, %d cores, %s%s\n", title, CpuModel(), std::thread::hardware_concurrency(),
               isa_, arguments_.quick ? " (--quick: the times mean nothing)" : "");
  absl::PrintF("%-16s %-34s %-9s %3s %-5s %10s %-7s %-20s %10s %7s  %s\n", "name", "shape", "dtype",
               "thr", "cache", "value", "unit", "baseline", "its value", "ratio", "target");
}

void Report::Add(Row row) {
  absl::PrintF("%-16s %-34s %-9s %3d %-5s %10.4g %-7s %-20s %10.4g %7.3f  %s\n", row.name,
               row.shape, row.dtype, row.threads, row.cache, row.value, row.unit, row.baseline,
               row.baseline_value, row.ratio, Verdict(row));
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

int Report::Finish() const {
  const nlohmann::json machine = {{"cpu", CpuModel()},
                                  {"cores", std::thread::hardware_concurrency()},
                                  {"isa", isa_},
                                  {"date", Today()}};
  nlohmann::json rows = nlohmann::json::array();
  int targets = 0;
  int missed = 0;
  for (const Row& row : rows_) {
    nlohmann::json json = {{"name", row.name},
                           {"shape", row.shape},
                           {"dtype", row.dtype},
                           {"threads", row.threads},
                           {"cache", row.cache},
                           {"value", row.value},
                           {"unit", row.unit},
                           {"baseline", row.baseline},
                           {"baseline_value", row.baseline_value},
                           {"ratio", row.ratio},
                           {"quick", arguments_.quick},
                           {"machine", machine}};
    json["target"] = nullptr;
    json["met"] = nullptr;
    if (row.most.has_value()) json["most"] = *row.most;
    if (row.target.has_value()) {
      const bool met = IsMet(row);
      json["target"] = *row.target;
      json["met"] = met;
      ++targets;
      missed += met ? 0 : 1;
    }
    rows.push_back(std::move(json));
  }
  for (const Row& row : rows_) {
    if (!row.target.has_value() || IsMet(row)) continue;
    absl::PrintF("MISS  %s %s %s %s: %.3f of %s, target %g\n", row.name, row.shape, row.dtype,
                 row.cache, row.ratio, row.baseline, row.wanted());
  }
  absl::PrintF("%d of %d targets met, %d missed\n", targets - missed, targets, missed);
  if (arguments_.json_path.empty()) return 0;
  std::ofstream file(arguments_.json_path);
  file << rows.dump(1) << "\n";
  file.close();
  if (!file) {
    absl::FPrintF(stderr, "cannot write %s\n", arguments_.json_path);
    return 1;
  }
  return 0;
}

void Die(std::string_view message) {
  absl::FPrintF(stderr, "FATAL: %s\n", message);
  std::exit(1);
}

Memory::Memory(int64_t bytes, Pages pages) : bytes_(bytes) {
  const size_t page = pages == Pages::kHuge ? size_t{2} << 20 : 4096;
  const size_t whole = (static_cast<size_t>(bytes) + page - 1) / page * page;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(page, whole)));
  if (data_ == nullptr) Die("no memory");
  if (pages == Pages::kHuge) madvise(data_.get(), whole, MADV_HUGEPAGE);  // a hint
  std::memset(data_.get(), 0x3F, static_cast<size_t>(bytes));
}

void FillNormal(Dtype dtype, const Memory& memory) {
  // A prime number of values, repeated, so that no two tokens or heads are alike.
  constexpr int64_t kValues = 999983;
  std::vector<std::byte> block(
      static_cast<size_t>(std::min(memory.size(), kValues * SizeOf(dtype))));
  std::minstd_rand generator(1);
  std::normal_distribution<float> normal;
  for (size_t at = 0; at < block.size(); at += static_cast<size_t>(SizeOf(dtype))) {
    float value = 0;
    while (std::abs(value) < 1e-4f) value = normal(generator);  // 1e-4 is normal in f16 too
    if (dtype == Dtype::kFloat32) {
      std::memcpy(&block[at], &value, sizeof(value));
      continue;
    }
    const uint16_t bits =
        dtype == Dtype::kFloat16 ? Float16FromFloat(value) : BFloat16FromFloat(value);
    std::memcpy(&block[at], &bits, sizeof(bits));
  }
  for (int64_t done = 0; done < memory.size();) {
    const int64_t part =
        std::min<int64_t>(memory.size() - done, static_cast<int64_t>(block.size()));
    std::memcpy(memory.data() + done, block.data(), static_cast<size_t>(part));
    done += part;
  }
}

}  // namespace phasor::bench
