// SPDX-License-Identifier: Apache-2.0
// Long rotations cut up: into batch entries, and into runs of tokens. Views only: nothing is
// copied. Threads: pure functions.
#ifndef PHASOR_CLIENT_COMMON_RUNS_H_
#define PHASOR_CLIENT_COMMON_RUNS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "client/connection.h"

namespace phasor::client_internal {

// A run of tokens.
struct TokenRun {
  int64_t first = 0;
  int64_t tokens = 0;
};

// `call`, on which ToRequest had nothing to say, as calls without a batch that cover it in order.
// Nothing: it is not of a form that can be cut, which includes every call that is wrong.
std::optional<std::vector<RopeCall>> CutBatch(const RopeCall& call);

// Of a call that CutBatch made: how many tokens it has, how many bytes the tensors have per token,
// and the call of a run of tokens, without positions.
int64_t TokensOf(const RopeCall& call);
int64_t BytesPerToken(const RopeCall& call);
RopeCall RunOf(const RopeCall& call, TokenRun run);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_COMMON_RUNS_H_
