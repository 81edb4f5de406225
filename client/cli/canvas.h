// SPDX-License-Identifier: Apache-2.0
// Canvas: a picture in memory with rectangles, lines and small text, which is written as PNG. The
// origin is the top left pixel.
#ifndef PHASOR_CLIENT_CLI_CANVAS_H_
#define PHASOR_CLIENT_CLI_CANVAS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace phasor::cli {

struct Color {
  uint8_t red = 0, green = 0, blue = 0;
  friend bool operator==(const Color&, const Color&) = default;
};

inline constexpr Color kWhite{255, 255, 255};
inline constexpr Color kBlack{0, 0, 0};
inline constexpr Color kGrey{216, 216, 216};

// A picture. Drawing outside of it is ignored. Threads: one.
class Canvas {
 public:
  // A white picture. Both sizes > 0.
  Canvas(int width, int height);

  int width() const { return width_; }
  int height() const { return height_; }
  Color at(int x, int y) const { return pixels_[static_cast<size_t>(y) * width_ + x]; }

  void Fill(int x, int y, int width, int height, Color color);
  void Line(int x0, int y0, int x1, int y1, Color color);
  // Writes printable ASCII; other characters become '?'. A character is 6 pixels wide and 8 high,
  // and (x, y) is the top left of the first one.
  void Text(int x, int y, std::string_view text, Color color);
  static int TextWidth(std::string_view text) { return static_cast<int>(text.size()) * 6; }
  static constexpr int kTextHeight = 8;

  // Writes as WriteFile does. RESOURCE_EXHAUSTED: no memory.
  absl::Status WritePng(const std::string& path) const;

 private:
  int width_;
  int height_;
  std::vector<Color> pixels_;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CANVAS_H_
