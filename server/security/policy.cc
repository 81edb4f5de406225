// SPDX-License-Identifier: Apache-2.0
// Parses the policy file and finds the grant of an identity.
#include "server/security/policy.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/json.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::security {
namespace {

constexpr std::array<std::string_view, 1> kTopKeys = {"identities"};
constexpr std::array<std::string_view, 4> kGrantKeys = {"identity", "methods", "max_inflight_bytes",
                                                        "max_regions"};
constexpr char kAnyone[] = "*";

// `pattern` has a form of Grant::methods.
bool Matches(std::string_view pattern, std::string_view method) {
  if (!pattern.ends_with('*')) return pattern == method;
  return method.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool IsPattern(std::string_view pattern) {
  const size_t star = pattern.find('*');
  return star == pattern.npos || pattern == "*" ||
         (star == pattern.size() - 1 && pattern.ends_with("/*"));
}

bool IsIdentity(std::string_view identity) {
  for (const std::string_view kind : {"token:", "san:"}) {
    if (identity.starts_with(kind)) return identity.size() > kind.size();
  }
  return identity == "unix" || identity == kAnyone;
}

absl::Status CheckKeys(const Json& json, const std::string& path,
                       absl::Span<const std::string_view> known) {
  if (!json.is_object()) return WrongJson(path, json, "an object");
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return UnknownKey(path, key, known);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMethods(const std::vector<std::string>& methods, const std::string& path,
                          absl::Span<const std::string> known) {
  for (size_t i = 0; i < methods.size(); ++i) {
    const auto names = [&](const std::string& method) { return Matches(methods[i], method); };
    if (IsPattern(methods[i]) && std::any_of(known.begin(), known.end(), names)) continue;
    return Invalid(path, "[", i, "]: '", methods[i],
                   "' names no method of this server; must be *, package.Service/* or "
                   "package.Service/Method");
  }
  return absl::OkStatus();
}

absl::Status ReadMaximum(const JsonObject& object, std::string_view key, int64_t* out) {
  std::optional<int64_t> maximum;
  PHASOR_RETURN_IF_ERROR(object.Read(key, &maximum));
  *out = maximum.value_or(kUnlimited);
  if (*out >= 0) return absl::OkStatus();
  return InvalidAt(object.PathOf(key), *out, "; must be at least 0");
}

}  // namespace

bool Grant::Allows(std::string_view method) const {
  const auto allows = [&](const std::string& pattern) { return Matches(pattern, method); };
  return std::any_of(methods.begin(), methods.end(), allows);
}

absl::StatusOr<Policy> Policy::Parse(std::string_view text, const std::string& path,
                                     absl::Span<const std::string> known) {
  PHASOR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  PHASOR_RETURN_IF_ERROR(CheckKeys(json, path, kTopKeys));
  const std::string list_path = StrCat(path, ": identities");
  const auto list = json.find("identities");
  if (list == json.end() || !list->is_array()) {
    return InvalidAt(list_path, "not set; must be a list");
  }
  Policy policy;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = StrCat(list_path, "[", i, "]");
    PHASOR_RETURN_IF_ERROR(CheckKeys((*list)[i], at, kGrantKeys));
    const JsonObject object((*list)[i], at);
    std::optional<std::string> identity;
    PHASOR_RETURN_IF_ERROR(object.Read("identity", &identity));
    if (!IsIdentity(identity.value_or(""))) {
      return Invalid(at, ".identity: '", identity.value_or(""),
                     "'; must be token:NAME, san:NAME, unix or *");
    }
    std::optional<std::vector<std::string>> methods;
    PHASOR_RETURN_IF_ERROR(object.Read("methods", &methods));
    Grant grant{methods.value_or(std::vector<std::string>())};
    PHASOR_RETURN_IF_ERROR(CheckMethods(grant.methods, StrCat(at, ".methods"), known));
    PHASOR_RETURN_IF_ERROR(ReadMaximum(object, "max_inflight_bytes", &grant.max_inflight_bytes));
    PHASOR_RETURN_IF_ERROR(ReadMaximum(object, "max_regions", &grant.max_regions));
    if (!policy.grants_.emplace(*identity, std::move(grant)).second) {
      return Invalid(at, ".identity: '", *identity, "' stands above already; must be there once");
    }
  }
  return policy;
}

const Grant* Policy::Find(const std::string& identity, std::string* name) const {
  auto found = grants_.find(identity);
  if (found == grants_.end()) found = grants_.find(kAnyone);
  if (found == grants_.end()) return nullptr;
  *name = found->first;
  return &found->second;
}

}  // namespace phasor::security
