// SPDX-License-Identifier: Apache-2.0
// A file that is mapped for reading, so that caches larger than memory can be checked.
#ifndef PHASOR_CLIENT_CLI_CACHE_MAPPED_FILE_H_
#define PHASOR_CLIENT_CLI_CACHE_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phasor::cli {

// The bytes of a whole file. The file must keep its size while it is mapped. Copies share the
// mapping. Threads: a plain value.
class MappedFile {
 public:
  // NOT_FOUND: cannot be opened. INVALID_ARGUMENT: no regular file, or empty. RESOURCE_EXHAUSTED:
  // cannot be mapped.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  absl::Span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::shared_ptr<const void> mapping_;  // unmaps when the last copy goes
  absl::Span<const std::byte> bytes_;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_MAPPED_FILE_H_
