// SPDX-License-Identifier: Apache-2.0
// Computes Levenshtein's distance, keeping one row of its table at a time.
#include "kernels/base/nearest_name.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr size_t kComparedBytes = 64;

// Edits of a typing error; names further apart than this have nothing to do with each other.
size_t MostEdits(size_t longer) { return longer < 4 ? 1 : std::max(size_t{2}, longer / 3); }

}  // namespace

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

std::string NearestName(std::string_view name, const std::vector<std::string>& names) {
  std::string nearest;
  size_t least = std::numeric_limits<size_t>::max();
  for (const std::string& known : names) {
    // The distance is at least the difference of the lengths.
    const size_t longer = std::max(known.size(), name.size());
    if (longer - std::min(known.size(), name.size()) >= least) continue;
    const size_t distance = EditDistance(name, known);
    if (distance < least) nearest = known;
    least = std::min(least, distance);
  }
  return nearest;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& names) {
  const std::string given = absl::AsciiStrToLower(TextPiece(name.substr(0, kComparedBytes)));
  std::string_view nearest;
  size_t least = kComparedBytes + 1;
  for (const std::string& known : names) {
    const std::string other = absl::AsciiStrToLower(TextPiece(known));
    const bool begins = given.size() > 1 && other.size() > given.size() && other.starts_with(given);
    if (begins && least > 0) nearest = known, least = 0;  // "enc" for "encode"
    const size_t longer = std::max(given.size(), other.size());
    if (longer - std::min(given.size(), other.size()) >= least) continue;
    const size_t distance = EditDistance(given, other);
    if (distance >= least || distance > MostEdits(longer) || distance == longer) continue;
    nearest = known;
    least = distance;
  }
  return nearest.empty() ? ";" : StrCat("; did you mean \"", nearest, "\"?");
}

}  // namespace phasor
