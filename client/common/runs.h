// SPDX-License-Identifier: Apache-2.0
// Cuts long rotations into batch entries and runs of tokens. These are views; nothing is copied.
// Threads: pure functions.
#ifndef PHASOR_CLIENT_COMMON_RUNS_H_
#define PHASOR_CLIENT_COMMON_RUNS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "client/connection.h"

namespace phasor::client_internal {

// Consecutive tokens [first, first + tokens).
struct TokenRun {
  int64_t first = 0;
  int64_t tokens = 0;
};

// Splits `call` into calls without a batch that together cover it, in order. ToRequest must have
// accepted `call`. nullopt: the call cannot be cut, which includes every invalid call.
std::optional<std::vector<RopeCall>> CutBatch(const RopeCall& call);

// For a call from CutBatch: its number of tokens, the bytes of all its tensors per token, and the
// call for one run of its tokens, without positions.
int64_t TokensOf(const RopeCall& call);
int64_t BytesPerToken(const RopeCall& call);
RopeCall RunOf(const RopeCall& call, TokenRun run);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_COMMON_RUNS_H_
