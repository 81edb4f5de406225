// SPDX-License-Identifier: Apache-2.0
// Draws encodings as heat maps, and the error of float32 angles as a chart.
#include "client/cli/plot.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/invalid.h"
#include "kernels/base/text.h"
#include "kernels/math/phase.h"
#include "kernels/math/sincos.h"

namespace phasor::cli {
namespace {

constexpr int kMargin = 12;
constexpr int kLabelWidth = 48;
constexpr int64_t kMaxCells = 4096;
constexpr int kWantedPixels = 640;  // of the longer side of a heat map
constexpr Color kRed{178, 24, 43};
constexpr Color kBlue{33, 102, 172};

// The color of `x`: blue at -1, white at 0, red at 1.
Color Diverging(double x) {
  const Color end = x < 0 ? kBlue : kRed;
  const double share = std::min(1.0, std::abs(x));
  const auto mix = [share](uint8_t to) {
    return static_cast<uint8_t>(std::lround(255 + share * (to - 255.0)));
  };
  return {mix(end.red), mix(end.green), mix(end.blue)};
}

double LargestMagnitude(absl::Span<const double> values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// An axis with marks at powers of ten, and its place in pixels.
struct LogAxis {
  double low = 0, high = 1;  // exponents
  int begin = 0, end = 1;    // pixels

  int Pixel(double value) const {
    const double exponent = std::log10(value);
    const double share = std::clamp((exponent - low) / (high - low), 0.0, 1.0);
    return begin + static_cast<int>(std::lround(share * (end - begin)));
  }
};

std::string PowerOfTen(int exponent) { return StrCat("1e", exponent); }

void DrawGrid(Canvas& canvas, const LogAxis& x, const LogAxis& y) {
  for (int e = static_cast<int>(std::ceil(x.low)); e <= x.high; ++e) {
    const int at = x.Pixel(std::pow(10, e));
    canvas.Line(at, y.begin, at, y.end, kGrey);
    canvas.Text(at - 8, y.begin + 6, PowerOfTen(e), kBlack);
  }
  for (int e = static_cast<int>(std::ceil(y.low)); e <= y.high; ++e) {
    const int at = y.Pixel(std::pow(10, e));
    canvas.Line(x.begin, at, x.end, at, kGrey);
    canvas.Text(kMargin, at - 4, PowerOfTen(e), kBlack);
  }
  canvas.Line(x.begin, y.begin, x.end, y.begin, kBlack);
  canvas.Line(x.begin, y.begin, x.begin, y.end, kBlack);
}

void DrawCurve(Canvas& canvas, const LogAxis& x, const LogAxis& y,
               absl::Span<const AngleError> errors, double AngleError::*field, Color color) {
  for (size_t i = 1; i < errors.size(); ++i) {
    for (const int thick : {0, 1}) {
      canvas.Line(x.Pixel(static_cast<double>(errors[i - 1].position)),
                  y.Pixel(errors[i - 1].*field) + thick,
                  x.Pixel(static_cast<double>(errors[i].position)),
                  y.Pixel(errors[i].*field) + thick, color);
    }
  }
}

AngleError ErrorAt(const SpecDetails& spec, int64_t position) {
  AngleError error{.position = position};
  for (const SpecDetails::Pair& pair : spec.pairs) {
    const uint64_t phase = PhaseOf({position, 0}, pair.turns) + pair.phase_offset;
    const long double angle =
        static_cast<long double>(phase) * 0x1p-64L * 2 * std::numbers::pi_v<long double>;
    const long double sine = std::sin(angle);
    const long double cosine = std::cos(angle);
    const auto distance = [&](long double s, long double c) {
      return static_cast<double>(std::max(std::abs(s - sine), std::abs(c - cosine)));
    };
    const SinCos<float> ours = SinCos32(phase);
    error.exact = std::max(error.exact, distance(ours.sin, ours.cos));
    const float rounded = static_cast<float>(position) * static_cast<float>(pair.inv_freq);
    const long double offset = static_cast<long double>(pair.phase_offset) * 0x1p-64L * 2 *
                               std::numbers::pi_v<long double>;
    const long double theirs = rounded + offset;
    error.float32_angle =
        std::max(error.float32_angle, distance(std::sin(theirs), std::cos(theirs)));
  }
  return error;
}

}  // namespace

absl::StatusOr<Canvas> HeatMap(absl::Span<const double> values, int64_t rows, int64_t columns,
                               const std::string& title) {
  if (rows < 1 || columns < 1)
    return Invalid("plot: no position or no column; must be at least 1 of each");
  if (rows > kMaxCells || columns > kMaxCells) {
    return Invalid("plot: ", rows, " positions of ", columns, " columns; must be at most ",
                   kMaxCells, " of each");
  }
  const int cell = std::max<int>(1, kWantedPixels / static_cast<int>(std::max(rows, columns)));
  const int left = kMargin + kLabelWidth;
  const int top = 2 * kMargin + 2 * Canvas::kTextHeight;
  const int width = cell * static_cast<int>(columns);
  const int height = cell * static_cast<int>(rows);
  const int least = kMargin + Canvas::TextWidth(title);
  Canvas canvas(std::max(left + width, least) + kMargin, top + height + kMargin);
  canvas.Text(kMargin, kMargin, title, kBlack);
  canvas.Text(left, top - Canvas::kTextHeight - 4, "0", kBlack);
  const std::string last_column = StrCat(columns - 1);
  if (width > 60) {
    canvas.Text(left + width - Canvas::TextWidth(last_column), top - Canvas::kTextHeight - 4,
                last_column, kBlack);
  }
  canvas.Text(kMargin, top, "row 0", kBlack);
  if (height > 3 * Canvas::kTextHeight) {
    canvas.Text(kMargin, top + height - Canvas::kTextHeight, StrCat(rows - 1), kBlack);
  }
  const double scale = std::max(LargestMagnitude(values), 1e-300);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const double value = values[row * columns + column];
      canvas.Fill(left + cell * static_cast<int>(column), top + cell * static_cast<int>(row), cell,
                  cell, std::isfinite(value) ? Diverging(value / scale) : kBlack);
    }
  }
  return canvas;
}

std::vector<AngleError> AngleErrors(const SpecDetails& spec, int64_t max_position, int count) {
  std::vector<AngleError> errors;
  const double ratio = std::log(static_cast<double>(max_position)) / std::max(1, count - 1);
  int64_t last = 0;
  for (int i = 0; i < count; ++i) {
    const auto position =
        std::min(max_position, static_cast<int64_t>(std::llround(std::exp(ratio * i))));
    if (position <= last) continue;
    errors.push_back(ErrorAt(spec, position));
    last = position;
  }
  return errors;
}

Canvas ErrorChart(absl::Span<const AngleError> errors, const std::string& title) {
  Canvas canvas(720, 440);
  const double last = errors.empty() ? 10 : static_cast<double>(errors.back().position);
  const LogAxis x{0, std::max(1.0, std::log10(last)), kMargin + kLabelWidth, 720 - kMargin};
  const LogAxis y{-9, 1, 440 - 4 * kMargin, 4 * kMargin};
  canvas.Text(kMargin, kMargin, title, kBlack);
  DrawGrid(canvas, x, y);
  DrawCurve(canvas, x, y, errors, &AngleError::float32_angle, kRed);
  DrawCurve(canvas, x, y, errors, &AngleError::exact, kBlue);
  canvas.Text(x.begin + 8, y.end + 8, "float32 angles: position * inv_freq rounded", kRed);
  canvas.Text(x.begin + 8, y.end + 22, "Phasor: integer phases", kBlue);
  canvas.Text(x.begin, 440 - kMargin - Canvas::kTextHeight,
              "position; vertical: largest error of a sine or cosine", kBlack);
  return canvas;
}

}  // namespace phasor::cli
