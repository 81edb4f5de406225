// SPDX-License-Identifier: Apache-2.0
// gmock matchers for absl::Status and absl::StatusOr: IsOk() and StatusIs(code, message matcher).
// They print the code and message that they see.
#ifndef PHASOR_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define PHASOR_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor::testing {

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message, negation)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code &&
         ::testing::Matches(message)(std::string(status.message().data(), status.message().size()));
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_STATUS_MATCHERS_H_
