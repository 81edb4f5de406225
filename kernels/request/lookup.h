// SPDX-License-Identifier: Apache-2.0
// Encoding from a learned table: the part of PrepareEncode for requests that name a table.
#ifndef PHASOR_KERNELS_REQUEST_LOOKUP_H_
#define PHASOR_KERNELS_REQUEST_LOOKUP_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/batch.h"
#include "kernels/request/request.h"

namespace phasor {

// `request.table` must not be empty, and output_dtype must have been checked. INVALID_ARGUMENT,
// NOT_FOUND, FAILED_PRECONDITION: as PrepareEncode. OUT_OF_RANGE: positions given without a tensor
// extend beyond the table. UNIMPLEMENTED: `tables` is nullptr.
absl::StatusOr<PreparedEncode> PrepareLookup(const EncodeRequest& request,
                                             const TableSource* tables, std::string_view path);

// OUT_OF_RANGE: the request is STRICT and the table has no row for a position. The message names
// the first such position and the limit. `prepared.table` and the data of positions must be set.
absl::Status CheckLookupPositions(const PreparedEncode& prepared, std::string_view path);

// Combines a prepared request with memory. `prepared` must outlive the job.
LookupJob MakeLookupJob(const PreparedEncode& prepared, const std::byte* add_to, std::byte* output);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_LOOKUP_H_
