// SPDX-License-Identifier: Apache-2.0
// Levenshtein's distance, one row of its table at a time.
#include "kernels/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace phasor {

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
  const auto nearest = std::min_element(names.begin(), names.end(),
                                        [name](const std::string& a, const std::string& b) {
                                          return EditDistance(name, a) < EditDistance(name, b);
                                        });
  return nearest == names.end() ? std::string() : *nearest;
}

}  // namespace phasor
