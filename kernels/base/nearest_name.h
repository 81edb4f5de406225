// SPDX-License-Identifier: Apache-2.0
// Finds the name to suggest for a wrong one ("did you mean"). Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_NEAREST_NAME_H_
#define PHASOR_KERNELS_BASE_NEAREST_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace phasor {

// The number of characters to insert, remove or replace to turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// The name in `names` that needs the fewest edits to become `name`; the first one of several; empty
// when there are no names.
std::string NearestName(std::string_view name, const std::vector<std::string>& names);

// For the middle of an error, before "must be one of": `; did you mean "<nearest of names>"?`, or
// `;` when none is near: one that begins with `name`, one edit of up to 3 characters, two or a
// third of longer names. Upper case counts as lower case. Only the first 64 bytes of `name` are
// compared: a caller may send megabytes.
std::string DidYouMean(std::string_view name, const std::vector<std::string>& names);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_NEAREST_NAME_H_
