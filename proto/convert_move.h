// SPDX-License-Identifier: Apache-2.0
// Converts messages of MoveKeys to the values of kernels/request/move_keys.h and back. Errors are
// as in proto/convert.h. Threads: pure functions.
#ifndef PHASOR_PROTO_CONVERT_MOVE_H_
#define PHASOR_PROTO_CONVERT_MOVE_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/request/move_keys.h"
#include "phasor/v1/move_keys.pb.h"

namespace phasor {

absl::StatusOr<MoveRequest> MoveRequestFromWire(const v1::MoveKeysItem& wire,
                                                const std::string& path);
// All pools are inline.
v1::MoveKeysItem ToWire(const MoveRequest& request);

KeyDifference DifferenceFromWire(const v1::KeyDifference& wire);
v1::KeyDifference ToWire(const KeyDifference& difference);

// Number of entries of `raw` that belong to the item.
int CountInlineTensors(const v1::MoveKeysItem& item);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_MOVE_H_
