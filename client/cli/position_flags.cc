// SPDX-License-Identifier: Apache-2.0
// Parses positions from flags and files.
#include "client/cli/position_flags.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

constexpr double kMaxCount = 0x1p40;

// The numbers that `parts` spell; nullopt if one of them is not a number of type T.
template <typename T>
std::optional<std::vector<T>> ParseAll(const std::vector<std::string>& parts) {
  std::vector<T> values;
  for (const std::string& part : parts) {
    T value = 0;
    const char* end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, value);
    if (error != std::errc() || stop != end) return std::nullopt;
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<AxisRange> MakeIntegerRange(int64_t start, int64_t stop, int64_t step,
                                           std::string_view flag) {
  const __int128 span = static_cast<__int128>(stop) - start;
  const __int128 towards = step > 0 ? span : -span;
  const __int128 size = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = towards <= 0 ? 0 : (towards + size - 1) / size;
  if (count > static_cast<__int128>(kMaxCount)) {
    return Invalid(flag, ": more than 2^40 positions; must be at most that");
  }
  return IntegerRange{start, step, static_cast<int64_t>(count)};
}

}  // namespace

absl::StatusOr<AxisRange> ParseRange(std::string_view text, std::string_view flag) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ':');
  if (parts.size() == 2 || parts.size() == 3) {
    if (const auto n = ParseAll<int64_t>(parts)) {
      const int64_t step = parts.size() == 3 ? (*n)[2] : 1;
      if (step == 0) return Invalid(flag, ": a step of 0; must be another number");
      return MakeIntegerRange((*n)[0], (*n)[1], step, flag);
    }
    if (const auto x = ParseAll<double>(parts)) {
      const double step = parts.size() == 3 ? (*x)[2] : 1.0;
      const double count = std::ceil(((*x)[1] - (*x)[0]) / step);
      if (step == 0 || !(count <= kMaxCount)) {
        return Invalid(flag, ": ", text, " has no end; must have at most 2^40 positions");
      }
      return RealRange{(*x)[0], step, static_cast<int64_t>(std::max(count, 0.0))};
    }
  }
  return Invalid(flag, ": '", text, "' is no range; must be start:stop or start:stop:step");
}

void PositionFlags::Add(CLI::App& app, const std::string& prefix) {
  prefix_ = prefix;
  const std::string group = "Positions";
  auto* written = app.add_option(
      "--" + prefix + "positions", written_,
      "Positions, separated by commas; the axes of one position are separated by '/': "
      "0/1,0/2");
  auto* ranges = app.add_option(
      "--" + prefix + "range", ranges_,
      "start:stop[:step] without stop; given once per axis, makes a grid in which the "
      "last axis changes fastest");
  auto* file =
      app.add_option("--" + prefix + "positions-file", file_,
                     ".npy of i4, i8, f4 or f8: [tokens] or [batch, tokens], with the axes of a "
                     "position last");
  written->excludes(ranges)->excludes(file)->group(group);
  ranges->excludes(file)->expected(1, kMaxAxes)->group(group);
  file->group(group);
}

bool PositionFlags::given() const {
  return !written_.empty() || !ranges_.empty() || !file_.empty();
}

absl::StatusOr<PositionList> PositionFlags::Get() {
  if (!written_.empty()) return GetWritten();
  if (!ranges_.empty()) return GetRanges();
  if (file_.empty()) {
    return Invalid("--", prefix_, "positions: not given; must be given, or --", prefix_,
                   "range or --", prefix_, "positions-file");
  }
  PHASOR_ASSIGN_OR_RETURN(array_, ReadNpy(file_, false));
  return PositionList(array_.view());
}

absl::StatusOr<PositionList> PositionFlags::GetWritten() {
  const std::vector<std::string> tokens = absl::StrSplit(written_, ',');
  std::vector<std::string> numbers;
  size_t axes = 0;
  for (const std::string& token : tokens) {
    const std::vector<std::string> parts = absl::StrSplit(token, '/');
    if (axes == 0) axes = parts.size();
    if (parts.size() != axes) {
      return Invalid("--", prefix_, "positions: '", token, "' has ", parts.size(),
                     " axes; must have as many as the first (", axes, ")");
    }
    numbers.insert(numbers.end(), parts.begin(), parts.end());
  }
  std::vector<int64_t> shape = {static_cast<int64_t>(tokens.size())};
  if (axes > 1) shape.push_back(static_cast<int64_t>(axes));
  written_axes_ = static_cast<int>(axes);
  if (auto integers = ParseAll<int64_t>(numbers)) {
    integers_ = *std::move(integers);
    return PositionList(View(integers_, std::move(shape)));
  }
  if (auto reals = ParseAll<double>(numbers)) {
    reals_ = *std::move(reals);
    return PositionList(View(reals_, std::move(shape)));
  }
  return Invalid("--", prefix_, "positions: '", written_,
                 "' is no list; must be numbers such as 10,12,16.5");
}

absl::Status PositionFlags::CheckAxes(const Client& client, const Spec& spec) const {
  if (written_axes_ < 2) return absl::OkStatus();
  const absl::StatusOr<SpecDetails> details = client.ResolveSpec(spec);
  if (!details.ok()) return absl::OkStatus();  // the call says what is wrong, or completes the spec
  return CheckAxes(details->spec.axes.value_or(1));
}

absl::Status PositionFlags::CheckAxes(int axes) const {
  if (written_axes_ < 2 || written_axes_ == axes) return absl::OkStatus();
  return Invalid("--", prefix_, "positions: ", written_axes_, " axes; must be ", axes,
                 ", the axes of the spec or table");
}

absl::StatusOr<PositionList> PositionFlags::GetRanges() const {
  PositionGrid grid;
  for (const std::string& text : ranges_) {
    PHASOR_ASSIGN_OR_RETURN(AxisRange range, ParseRange(text, StrCat("--", prefix_, "range")));
    grid.axes.push_back(range);
  }
  if (grid.axes.size() > 1) return PositionList(std::move(grid));
  if (const auto* integers = std::get_if<IntegerRange>(&grid.axes[0])) {
    return PositionList(*integers);
  }
  return PositionList(std::get<RealRange>(grid.axes[0]));
}

}  // namespace phasor::cli
