// SPDX-License-Identifier: Apache-2.0
// Checks the names of learned tables and looks tables up.
#include "kernels/tensor/table.h"

#include <algorithm>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr size_t kMaxNameBytes = 128;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

bool IsTableName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

absl::Status CheckTableName(std::string_view name, std::string_view path) {
  if (IsTableName(name)) return absl::OkStatus();
  return InvalidAt(path, "is no name of a table; must be 1 to ", kMaxNameBytes,
                   " characters of a-z, 0-9, '.', '_' and '-', the first not a dot");
}

absl::StatusOr<std::shared_ptr<const Table>> FindTable(const TableSource* tables,
                                                       std::string_view name,
                                                       std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckTableName(name, path));
  if (tables != nullptr) return tables->Find(name, path);
  return absl::UnimplementedError(
      StrCat(path, ": tables have names on a server only; must be empty in process"));
}

}  // namespace phasor
