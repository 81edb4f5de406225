// SPDX-License-Identifier: Apache-2.0
// "Did you mean": how far names are apart. Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_NEAREST_NAME_H_
#define PHASOR_KERNELS_BASE_NEAREST_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace phasor {

// Characters to insert, remove or replace until `a` is `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// The first of those of `names` that are the fewest edits from `name`; empty when there are none.
std::string NearestName(std::string_view name, const std::vector<std::string>& names);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_NEAREST_NAME_H_
