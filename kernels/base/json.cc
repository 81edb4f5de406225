// SPDX-License-Identifier: Apache-2.0
// Parses JSON into a value and stops as soon as a limit is passed; formats the errors about values.
#include "kernels/base/json.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

// Builds a value from the events of nlohmann's parser and stops the parser at the limits. The
// parser has its own builder, but that one searches all members of an object each time it adds one.
// Threads: one thread at a time.
class Maker {
 public:
  explicit Maker(std::string_view path) : path_(path) {}

  // Returns the value. Fails if the parser was stopped or the text is not JSON.
  absl::StatusOr<Json> Take(bool parsed) {
    PHASOR_RETURN_IF_ERROR(status_);
    if (!parsed) return Invalid("not JSON; must be JSON");
    return std::move(root_);
  }

  // The parser calls these. Returning false stops it.
  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(int64_t value) { return Add(value); }
  bool number_unsigned(uint64_t value) { return Add(value); }
  bool number_float(double value, const std::string&) { return Add(value); }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // text cannot hold binary values
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool key(std::string& key) {
    key_ = std::move(key);
    return true;
  }
  bool end_object() {
    CheckKeys(open_.back()->get_ref<const Json::object_t&>());
    return end_array() && status_.ok();
  }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) { return false; }

 private:
  template <typename... T>
  absl::Status Invalid(const T&... message) const {
    return InvalidAt(path_, message...);
  }

  bool Add(Json value) {
    if (++values_ > kMaxJsonValues) {
      status_ = Invalid("more than ", kMaxJsonValues,
                        " values; must be at most as many; leave out what is not read");
    } else if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back()->is_array()) {
      open_.back()->get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value));
    }
    return status_.ok();
  }

  bool Open(Json empty) {
    if (open_.size() >= kMaxJsonDepth) {
      status_ = Invalid("nested deeper than ", kMaxJsonDepth, "; must be at most that deep");
      return false;
    }
    if (!Add(std::move(empty))) return false;
    // The address stays valid: nothing is added to the parent until this value is closed.
    Json* const parent = open_.empty() ? nullptr : open_.back();
    open_.push_back(parent == nullptr ? &root_ : &parent->back());
    return true;
  }

  void CheckKeys(const Json::object_t& object) {
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const auto& [key, value] : object) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice == keys.end()) return;
    status_ = Invalid("key \"", Shown(*twice), "\" twice in one object; must be there once");
  }

  std::string_view path_;
  Json root_;
  std::vector<Json*> open_;  // the open objects and lists, innermost last
  std::string key_;          // of the next value
  size_t values_ = 0;
  absl::Status status_;
};

std::string ShownJson(const Json& json) {
  return Shown(json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view path) {
  if (text.size() > kMaxJsonBytes) {
    return InvalidAt(path, text.size(), " bytes of JSON; must be at most ", kMaxJsonBytes);
  }
  Maker maker(path);
  const bool parsed = Json::sax_parse(text.begin(), text.end(), &maker);
  return maker.Take(parsed);
}

absl::Status WrongJson(std::string_view path, const Json& json, std::string_view accepted) {
  return InvalidAt(path, ShownJson(json), "; must be ", accepted);
}

absl::Status WrongName(std::string_view path, const Json& json,
                       const std::vector<std::string>& names) {
  const std::string given = json.is_string() ? json.get<std::string>() : "";
  return InvalidAt(path, ShownJson(json), DidYouMean(given, names), " must be one of ",
                   absl::StrJoin(names, ", "));
}

absl::Status UnknownKey(std::string_view path, std::string_view key,
                        absl::Span<const std::string_view> known) {
  const std::string shown = Shown(key);
  return Invalid(path, ".", shown, ": no such field; the nearest known one is ",
                 NearestName(shown, {known.begin(), known.end()}));
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

std::string JsonObject::PathOf(std::string_view key) const {
  return StrCat(path_, ".", Shown(key));
}

const Json* JsonObject::Find(std::string_view key) const {
  const auto member = json_->find(std::string(key));
  return member == json_->end() || member->is_null() ? nullptr : &*member;
}

}  // namespace phasor
