// SPDX-License-Identifier: Apache-2.0
// Parses JSON from outside under limits and without duplicate keys, and reads its values as C++
// types. Errors name the path of the value. Threads: pure functions.
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
// The limit on members of objects and elements of lists, counted together. Configurations of
// language models have a few thousand; the 21841 labels of ImageNet in both directions are 43682.
inline constexpr size_t kMaxJsonValues = size_t{1} << 16;

// Parses `text`. INVALID_ARGUMENT if it is not JSON (NaN and Infinity are not), has more than
// kMaxJsonBytes or more than kMaxJsonValues values, is nested deeper than kMaxJsonDepth, or gives a
// key twice in one object. Parsing stops at the limit that is passed. The time grows with the
// bytes, and by sorting with the keys of an object.
absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view path);

// INVALID_ARGUMENT `<path>: <json>, must be <accepted>`. Long values are cut.
absl::Status WrongJson(std::string_view path, const Json& json, std::string_view accepted);

// `<path>: <json>, did you mean "<nearest>"? must be one of <names>`, INVALID_ARGUMENT.
absl::Status WrongName(std::string_view path, const Json& json,
                       const std::vector<std::string>& names);

// INVALID_ARGUMENT `<path>.<key>: no such field; the nearest known one is <nearest>`.
absl::Status UnknownKey(std::string_view path, std::string_view key,
                        absl::Span<const std::string_view> known);

// Reads the value as a C++ type. INVALID_ARGUMENT if it has another type or the integer does not
// fit.
absl::Status ReadJson(const Json& json, std::string_view path, double* out);
absl::Status ReadJson(const Json& json, std::string_view path, int64_t* out);
absl::Status ReadJson(const Json& json, std::string_view path, int* out);
absl::Status ReadJson(const Json& json, std::string_view path, bool* out);
absl::Status ReadJson(const Json& json, std::string_view path, std::string* out);

// Reads a list, each element by the functions above.
template <typename T>
absl::Status ReadJson(const Json& json, std::string_view path, std::vector<T>* out) {
  if (!json.is_array()) return WrongJson(path, json, "a list");
  out->clear();
  for (const Json& element : json) {
    if (ReadJson(element, path, &out->emplace_back()).ok()) continue;
    // Build the element's path only for the error: it costs an allocation.
    const std::string at = std::string(path) + "[" + std::to_string(out->size() - 1) + "]";
    return ReadJson(element, at, &out->back());
  }
  return absl::OkStatus();
}

// A JSON object together with its path. Reads members by name; a member that is null counts as
// absent, as in the programs that write such files. Borrows the JSON.
// Threads: one thread at a time.
class JsonObject {
 public:
  JsonObject(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }
  // The path of a member. A long key is cut.
  std::string PathOf(std::string_view key) const;

  // The member, or nullptr if it is absent.
  const Json* Find(std::string_view key) const;

  // Reads the member if it is present. Errors as those of ReadJson.
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
