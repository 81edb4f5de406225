// SPDX-License-Identifier: Apache-2.0
// Reads whole files without ever waiting for a writer.
#ifndef PHASOR_SERVER_BASE_REGULAR_FILE_H_
#define PHASOR_SERVER_BASE_REGULAR_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace phasor {

// Returns the bytes of a regular file; follows symbolic links. Refuses anything else without
// reading it: opening a FIFO without a writer would block for ever. The message does not contain
// the path.
// NOT_FOUND "cannot be read (...); ...". UNAVAILABLE: the same, for want of descriptors or memory,
// or by an error of the disk. INVALID_ARGUMENT "is not a regular file; ...", "is larger than
// ... bytes; ...".
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t max_bytes);

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_REGULAR_FILE_H_
