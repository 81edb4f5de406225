// SPDX-License-Identifier: Apache-2.0
// Files of credentials: reads them and detects changes.
#ifndef PHASOR_SERVER_SECURITY_CREDENTIAL_FILE_H_
#define PHASOR_SERVER_SECURITY_CREDENTIAL_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/file_stamp.h"

namespace phasor::security {

// Stamps of several paths. An empty path counts as a missing file.
std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths);

// Reads a regular file. INVALID_ARGUMENT "<option>: ...": it cannot be read, is not a regular file,
// or has more than 1 MiB. UNAVAILABLE: it cannot be read at the moment.
absl::StatusOr<std::string> ReadFile(const std::string& option, const std::string& path);

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_CREDENTIAL_FILE_H_
