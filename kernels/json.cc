// SPDX-License-Identifier: Apache-2.0
#include "kernels/json.h"

#include <limits>
#include <set>
#include <vector>

#include "kernels/nearest_name.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor {
namespace {

// Watches a parse: how deep it goes, and the keys of each open object.
// Threads: one thread.
class Watcher {
 public:
  explicit Watcher(std::string_view path) : path_(path) {}

  // A callback of Json::parse. False drops the value, so that what is refused is not kept.
  bool See(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (!status_.ok()) return false;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= kMaxJsonDepth) {
      status_ = absl::InvalidArgumentError(
          StrCat(path_, ": nested deeper than ", kMaxJsonDepth, ", must be at most that deep"));
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) SeeKey(parsed.get_ref<const std::string&>());
    return status_.ok();
  }

  const absl::Status& status() const { return status_; }

 private:
  void SeeKey(const std::string& key) {
    if (keys_.back().insert(key).second) return;
    status_ = absl::InvalidArgumentError(
        StrCat(path_, ": key \"", key.substr(0, 64), "\" twice in one object, must be there once"));
  }

  std::string_view path_;
  std::vector<std::set<std::string>> keys_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view path) {
  if (text.size() > kMaxJsonBytes) {
    return absl::InvalidArgumentError(
        StrCat(path, ": ", text.size(), " bytes of JSON, must be at most ", kMaxJsonBytes));
  }
  Watcher watcher(path);
  Json json = Json::parse(
      text.begin(), text.end(),
      [&watcher](int depth, Json::parse_event_t event, Json& parsed) {
        return watcher.See(depth, event, parsed);
      },
      /*allow_exceptions=*/false);
  PHASOR_RETURN_IF_ERROR(watcher.status());
  if (json.is_discarded()) return absl::InvalidArgumentError(StrCat(path, ": not JSON, must be"));
  return json;
}

absl::Status WrongJson(std::string_view path, const Json& json, std::string_view accepted) {
  constexpr size_t kShown = 64;
  std::string value = json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (value.size() > kShown) value = value.substr(0, kShown) + "...";
  return absl::InvalidArgumentError(StrCat(path, ": ", value, ", must be ", accepted));
}

absl::Status UnknownKey(std::string_view path, std::string_view key,
                        absl::Span<const std::string_view> known) {
  const std::string_view shown = key.substr(0, 64);
  return absl::InvalidArgumentError(StrCat(path, ".", shown,
                                           ": no such field, the nearest known one is ",
                                           NearestName(shown, {known.begin(), known.end()})));
}

absl::Status ReadJson(const Json& json, std::string_view path, double* out) {
  if (!json.is_number()) return WrongJson(path, json, "a number");
  *out = json.get<double>();
  return absl::OkStatus();
}

absl::Status ReadJson(const Json& json, std::string_view path, int64_t* out) {
  const bool fits = json.is_number_integer() &&
                    (!json.is_number_unsigned() ||
                     json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
  if (!fits) return WrongJson(path, json, "an integer of 64 bits");
  *out = json.get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadJson(const Json& json, std::string_view path, int* out) {
  int64_t value = 0;
  PHASOR_RETURN_IF_ERROR(ReadJson(json, path, &value));
  *out = static_cast<int>(value);
  if (*out != value) return WrongJson(path, json, "an integer of 32 bits");
  return absl::OkStatus();
}

absl::Status ReadJson(const Json& json, std::string_view path, bool* out) {
  if (!json.is_boolean()) return WrongJson(path, json, "true or false");
  *out = json.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadJson(const Json& json, std::string_view path, std::string* out) {
  if (!json.is_string()) return WrongJson(path, json, "a string");
  *out = json.get<std::string>();
  return absl::OkStatus();
}

std::string JsonObject::PathOf(std::string_view key) const { return StrCat(path_, ".", key); }

const Json* JsonObject::Find(std::string_view key) const {
  const auto member = json_->find(std::string(key));
  return member == json_->end() || member->is_null() ? nullptr : &*member;
}

}  // namespace phasor
