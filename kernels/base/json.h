// SPDX-License-Identifier: Apache-2.0
// JSON from outside: parsed under limits, without duplicate keys, read with errors that name the
// path. For the few sources of this layer that read or write JSON. Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_JSON_H_
#define PHASOR_KERNELS_BASE_JSON_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phasor {

using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;
inline constexpr int kMaxJsonDepth = 32;
// Members of objects and elements of lists, all together. Files of language models have a few
// thousand; the 21841 labels of ImageNet in both directions are 43682.
inline constexpr size_t kMaxJsonValues = size_t{1} << 16;

// INVALID_ARGUMENT: not JSON (NaN and Infinity are not), more than kMaxJsonBytes, deeper than
// kMaxJsonDepth, more than kMaxJsonValues, or a key twice in one object. The first three end the
// parse where they are passed. Takes time in proportion to the bytes, but for sorting the keys.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view path);

// `<path>: <json>, must be <accepted>`, INVALID_ARGUMENT. Long values are cut.
absl::Status WrongJson(std::string_view path, const Json& json, std::string_view accepted);

// `<path>: <json>, did you mean "<nearest>"? must be one of <names>`, INVALID_ARGUMENT.
absl::Status WrongName(std::string_view path, const Json& json,
                       const std::vector<std::string>& names);

// `<path>: no such field, the nearest known one is <nearest>`, INVALID_ARGUMENT.
absl::Status UnknownKey(std::string_view path, std::string_view key,
                        absl::Span<const std::string_view> known);

// The value as a C++ type. INVALID_ARGUMENT: another type, or an integer that does not fit.
absl::Status ReadJson(const Json& json, std::string_view path, double* out);
absl::Status ReadJson(const Json& json, std::string_view path, int64_t* out);
absl::Status ReadJson(const Json& json, std::string_view path, int* out);
absl::Status ReadJson(const Json& json, std::string_view path, bool* out);
absl::Status ReadJson(const Json& json, std::string_view path, std::string* out);

// Reads a list, each element as above.
template <typename T>
absl::Status ReadJson(const Json& json, std::string_view path, std::vector<T>* out) {
  if (!json.is_array()) return WrongJson(path, json, "a list");
  out->clear();
  for (const Json& element : json) {
    if (ReadJson(element, path, &out->emplace_back()).ok()) continue;
    // Only now is the path of the element worth its bytes.
    const std::string at = std::string(path) + "[" + std::to_string(out->size() - 1) + "]";
    return ReadJson(element, at, &out->back());
  }
  return absl::OkStatus();
}

// An object and where it stands. A member that is null counts as absent, as it does for the
// programs that write such files. Borrows the JSON. Threads: one thread.
class JsonObject {
 public:
  JsonObject(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }
  // Of a member. A long key is cut.
  std::string PathOf(std::string_view key) const;

  // The member, or nullptr.
  const Json* Find(std::string_view key) const;

  // Reads the member if it is there. Errors as ReadJson's.
  template <typename T>
  absl::Status Read(std::string_view key, std::optional<T>* out) const {
    const Json* const member = Find(key);
    return member == nullptr ? absl::OkStatus() : ReadJson(*member, PathOf(key), &out->emplace());
  }

 private:
  const Json* json_;
  std::string path_;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_JSON_H_
