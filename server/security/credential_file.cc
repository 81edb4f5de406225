// SPDX-License-Identifier: Apache-2.0
// Reads credential files and their stamps.
#include "server/security/credential_file.h"

#include "absl/strings/str_cat.h"
#include "server/base/regular_file.h"

namespace phasor::security {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

}  // namespace

std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths) {
  std::vector<FileStamp> stamps;
  for (const std::string& path : paths) stamps.push_back(StampOf(path));
  return stamps;
}

absl::StatusOr<std::string> ReadFile(const std::string& option, const std::string& path) {
  absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxFileBytes);
  if (text.ok()) return text;
  const bool passes = absl::IsUnavailable(text.status());
  return absl::Status(passes ? absl::StatusCode::kUnavailable : absl::StatusCode::kInvalidArgument,
                      absl::StrCat(option, ": '", path, "' ", text.status().message()));
}

}  // namespace phasor::security
