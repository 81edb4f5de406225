// SPDX-License-Identifier: Apache-2.0
// Reads and writes .npy files.
#include "client/cli/npy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cli {

absl::StatusOr<NpyArray> ReadNpy(const std::string& path, bool u2_as_bf16) {
  std::error_code error;
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file)
    return absl::NotFoundError(
        StrCat(path, ": cannot be opened; must be a file that you may read"));
  std::string start(static_cast<size_t>(std::min(file_bytes, kMaxNpyHeaderBytes + 16)), '\0');
  if (!file.read(start.data(), static_cast<std::streamsize>(start.size()))) {
    return InvalidAt(path, "cannot be read to its end; must be a whole file");
  }
  PHASOR_ASSIGN_OR_RETURN(const NpyHeader header,
                          ParseNpyHeader(start, file_bytes, u2_as_bf16, path));
  NpyArray array{.dtype = header.tensor.dtype, .shape = header.tensor.shape};
  PHASOR_ASSIGN_OR_RETURN(array.bytes, Bytes::Allocate(header.data_bytes));
  file.seekg(header.data_begin);
  if (!file.read(reinterpret_cast<char*>(array.bytes.data()), header.data_bytes)) {
    return InvalidAt(path, "cannot be read to its end; must be a whole file");
  }
  return array;
}

absl::Status WriteNpy(const std::string& path, const TensorView& tensor) {
  return WriteFile(
      path, {FormatNpyHeader(tensor.desc),
             {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes)}});
}

absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> parts) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status old = fs::symlink_status(path, error);
  std::string written = StrCat(path, ".", getpid(), ".part");
  std::ofstream file;
  if (fs::is_regular_file(old) && access(path.c_str(), W_OK) == 0) {
    file.open(written, std::ios::binary | std::ios::trunc);
  }
  errno = 0;
  if (!file.is_open()) {  // nothing to keep, or its folder takes no other file
    written = path;
    file.open(path, std::ios::binary | std::ios::trunc);
  }
  for (const std::string_view part : parts) file << part;
  file.close();
  absl::Status status = file ? absl::OkStatus() : CannotWrite(path);
  if (written == path) return status;
  fs::permissions(written, old.permissions(), error);
  if (status.ok() && std::rename(written.c_str(), path.c_str()) != 0) status = CannotWrite(path);
  if (!status.ok()) fs::remove(written, error);
  return status;
}

absl::Status CannotWrite(const std::string& path) {
  return absl::InvalidArgumentError(StrCat("--output: ", path, " cannot be written (",
                                           std::generic_category().message(errno),
                                           "); must be a place where you may write"));
}

}  // namespace phasor::cli
