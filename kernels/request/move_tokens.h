// SPDX-License-Identifier: Apache-2.0
// Turns the runs and slots of a move into one list of tokens. Used by kernels/request/move_keys.h.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_MOVE_TOKENS_H_
#define PHASOR_KERNELS_REQUEST_MOVE_TOKENS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/request/move_keys.h"

namespace phasor {

// Tokens of one request.
inline constexpr int64_t kMaxMoveTokens = int64_t{1} << 20;

// The pages that a group's layers have, and those of their destinations.
struct KeyPages {
  int64_t page_size = 1;
  int64_t slots = 0;  // the fewest of a layer
  int64_t to_page_size = 1;
  int64_t to_slots = 0;
};

// INVALID_ARGUMENT: a count, page, slot or number of positions is wrong; two tokens have one
// destination; in place, a token has a destination of its own.
absl::StatusOr<MoveTokens> ExpandTokens(const KeyGroup& group, const KeyPages& pages, MoveMode mode,
                                        std::string_view path);

// How many tokens the group has, as far as its fields say. INVALID_ARGUMENT: a count is negative or
// beyond kMaxMoveTokens.
absl::StatusOr<int64_t> CountTokens(const KeyGroup& group, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_MOVE_TOKENS_H_
