// SPDX-License-Identifier: Apache-2.0
// Encode from a learned table: the part of PrepareEncode for requests that name one.
#ifndef PHASOR_KERNELS_REQUEST_LOOKUP_H_
#define PHASOR_KERNELS_REQUEST_LOOKUP_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/batch.h"
#include "kernels/request/request.h"

namespace phasor {

// `request.table` is not empty and output_dtype checked. INVALID_ARGUMENT, NOT_FOUND,
// FAILED_PRECONDITION as PrepareEncode; OUT_OF_RANGE: positions that are no tensor and leave the
// table; UNIMPLEMENTED: `tables` is nullptr.
absl::StatusOr<PreparedEncode> PrepareLookup(const EncodeRequest& request,
                                             const TableSource* tables, std::string_view path);

// OUT_OF_RANGE: a position that a STRICT request's table has no row for; the message names the
// first one and the limit. `prepared.table` is set, and the data of positions.
absl::Status CheckLookupPositions(const PreparedEncode& prepared, std::string_view path);

// Joins a prepared request with memory; `prepared` must outlive the job.
LookupJob MakeLookupJob(const PreparedEncode& prepared, const std::byte* add_to, std::byte* output);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_LOOKUP_H_
