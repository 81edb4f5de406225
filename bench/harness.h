// SPDX-License-Identifier: Apache-2.0
// Measures a subject and its baselines side by side: each round runs each of them once, in turn, so
// that other work of the machine affects all alike. Reports medians over the rounds.
// docs/benchmarks.md explains the rows.
#ifndef PHASOR_BENCH_HARNESS_H_
#define PHASOR_BENCH_HARNESS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/dtype.h"

namespace phasor::bench {

// The command line of every benchmark: [OUT.json] [--quick] [--all].
struct Arguments {
  std::string json_path;  // empty: no file
  bool quick = false;     // few rounds: shows that it works, the times mean nothing
  bool all = false;       // every size, where a benchmark shows fewer by default
  // A row stops after the round in which it has taken this long, but not before the third.
  double row_seconds = std::numeric_limits<double>::infinity();
  int full_rounds = 15;

  int rounds() const { return quick ? 2 : full_rounds; }
  double round_seconds() const { return quick ? 0 : 0.005; }
};
// Prints the usage and exits on any other argument.
Arguments ParseArguments(int argc, char** argv);

// What the caches contain when a run starts.
enum class Cache {
  kWarm,  // the run's own data: an untimed run comes first
  kCold,  // other data: caches are filled with it before each run
  kAny,   // whatever the run before left; for runs of many calls
};

struct Candidate {
  std::function<void()> run;
  Cache cache = Cache::kWarm;
};

// The seconds of one run of each candidate, by candidate and round. A round times each candidate
// once, in another order than the rounds before; a warm candidate repeats its run until the round
// is long enough for the clock.
std::vector<std::vector<double>> RoundSeconds(const Arguments& arguments,
                                              absl::Span<const Candidate> candidates);
// The medians over the rounds.
std::vector<double> MedianSeconds(const Arguments& arguments,
                                  absl::Span<const Candidate> candidates);

// The middle value, or the mean of the two middle ones. `values` must not be empty.
double Median(std::vector<double> values);
// The median over pairs of rounds of a quotient or a difference. Neighbours on the machine move
// both rounds of a pair alike.
double MedianRatio(absl::Span<const double> a, absl::Span<const double> b);
double MedianDifference(absl::Span<const double> a, absl::Span<const double> b);

// One line of the report.
struct Row {
  std::string name;   // encode, rope_inplace, rpc_rope, plan, ...
  std::string shape;  // "131072x128 interleaved"
  std::string dtype;
  int threads = 1;
  std::string cache;  // "warm", "cold", "DRAM" (data larger than the caches) or ""
  double value = 0;
  std::string unit;
  std::string baseline;
  double baseline_value = 0;
  double ratio = 0;              // of value and baseline_value; higher is better
  std::optional<double> target;  // least ratio; nullopt: the row is only information
  // The ratio that the floor of the row has in the same run: a candidate that does only what nobody
  // can leave out. A row that comes within a tenth of its floor meets a target beyond that.
  std::optional<double> most;

  // The least ratio that meets the target. There must be one.
  double wanted() const { return most.has_value() ? std::min(*target, 0.9 * *most) : *target; }
};

// For rates: ratio = value / baseline_value.
Row RateRow(Row row, double value, double baseline_value, std::optional<double> target = {});
// For times, sizes and anything that should be small: ratio = baseline_value / value.
Row CostRow(Row row, double value, double baseline_value, std::optional<double> target = {});

// Prints rows as they are added. Threads: one thread at a time.
class Report {
 public:
  // `isa` is the backend's target().
  Report(std::string title, Arguments arguments, std::string isa);
  void Add(Row row);
  // Prints the targets that were missed and the summary, and writes the JSON. Returns the exit
  // status: 1 if the file cannot be written. A missed target is a result, not a failure.
  int Finish() const;

 private:
  const Arguments arguments_;
  const std::string isa_;
  std::vector<Row> rows_;
};

// Prints the message and exits, because the times of wrong results mean nothing.
[[noreturn]] void Die(std::string_view message);

enum class Pages { kOrdinary, kHuge };

// Page-aligned memory whose pages are mapped. Owns it. Huge pages are used as far as the system
// has them.
class Memory {
 public:
  explicit Memory(int64_t bytes, Pages pages = Pages::kOrdinary);
  std::byte* data() const { return data_.get(); }
  int64_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// Fills `memory` with normally distributed elements, none of them zero or subnormal. `dtype` is
// FLOAT32, FLOAT16 or BFLOAT16.
void FillNormal(Dtype dtype, const Memory& memory);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_HARNESS_H_
