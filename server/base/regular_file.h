// SPDX-License-Identifier: Apache-2.0
// Reads whole files without ever waiting for a writer.
#ifndef PHASOR_SERVER_BASE_REGULAR_FILE_H_
#define PHASOR_SERVER_BASE_REGULAR_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace phasor {

// The bytes of a regular file, symbolic links followed. Whatever else is at the path is refused
// unread: to open a FIFO that nobody writes to would block for ever. The message says what is wrong
// without the path: NOT_FOUND "cannot be read: ..."; INVALID_ARGUMENT "is not a regular file; ...",
// "is larger than ... bytes; ...".
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t max_bytes);

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_REGULAR_FILE_H_
