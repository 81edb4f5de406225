// SPDX-License-Identifier: Apache-2.0
// Converts statuses between Abseil and gRPC. Both enumerations have the same 17 codes, so a cast
// converts a code.
#include "proto/grpc_status.h"

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

#define PHASOR_SAME_CODE(absl_code, grpc_code) \
  static_assert(static_cast<int>(absl::StatusCode::absl_code) == grpc::StatusCode::grpc_code)
PHASOR_SAME_CODE(kOk, OK);
PHASOR_SAME_CODE(kCancelled, CANCELLED);
PHASOR_SAME_CODE(kUnknown, UNKNOWN);
PHASOR_SAME_CODE(kInvalidArgument, INVALID_ARGUMENT);
PHASOR_SAME_CODE(kDeadlineExceeded, DEADLINE_EXCEEDED);
PHASOR_SAME_CODE(kNotFound, NOT_FOUND);
PHASOR_SAME_CODE(kAlreadyExists, ALREADY_EXISTS);
PHASOR_SAME_CODE(kPermissionDenied, PERMISSION_DENIED);
PHASOR_SAME_CODE(kResourceExhausted, RESOURCE_EXHAUSTED);
PHASOR_SAME_CODE(kFailedPrecondition, FAILED_PRECONDITION);
PHASOR_SAME_CODE(kAborted, ABORTED);
PHASOR_SAME_CODE(kOutOfRange, OUT_OF_RANGE);
PHASOR_SAME_CODE(kUnimplemented, UNIMPLEMENTED);
PHASOR_SAME_CODE(kInternal, INTERNAL);
PHASOR_SAME_CODE(kUnavailable, UNAVAILABLE);
PHASOR_SAME_CODE(kDataLoss, DATA_LOSS);
PHASOR_SAME_CODE(kUnauthenticated, UNAUTHENTICATED);
#undef PHASOR_SAME_CODE

constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);

constexpr std::string_view kEnded = "it ended the connection";
constexpr std::string_view kUseTls =
    "set tls (--tls) if it uses TLS, and tls.cert_file (--cert) if it wants a certificate";

// What gRPC or its TLS library says, in lower case, when no connection comes about; what that means
// and what to do.
constexpr struct {
  std::string_view sign, wrong, what_to_do;
} kConnectionErrors[] = {
    {"wrong version number", "it does not use TLS", "connect without tls (--tls)"},
    {"certificate verify failed", "its certificate has expired or has an unknown authority",
     "give the authority as tls.ca_file (--ca)"},
    {"hostname verification check failed", "its certificate has another name",
     "give that as tls.server_name (--server-name)"},
    {"socket closed", kEnded, kUseTls},
    {"connection reset", kEnded, kUseTls},
};

// The message with its meaning, if it is known.
std::string ConnectionError(const std::string& message) {
  const std::string text =  // BoringSSL writes underlines
      absl::StrReplaceAll(absl::AsciiStrToLower(message), {{"_", " "}});
  for (const auto& [sign, wrong, what_to_do] : kConnectionErrors) {
    if (text.find(sign) == text.npos) continue;
    return StrCat("server: ", wrong, " (", message, "); ", what_to_do);
  }
  return message;
}

}  // namespace

std::string BoundedStatusMessage(absl::string_view message) {
  return Shown(std::string_view(message.data(), message.size()), kMaxStatusMessageBytes);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      BoundedStatusMessage(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  // A server's gRPC resets a call whose message does not fit the memory that the byte budget
  // leaves. The error names neither.
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      absl::StrContains(status.error_message(), "RST_STREAM")) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "request: the server has no room for its bytes (", status.error_message(),
        "); send fewer tokens in one call, or raise the server's --max-inflight-bytes"));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
      absl::StrContains(status.error_message(), "last error: ")) {  // of the attempts to connect
    return absl::UnavailableError(ConnectionError(status.error_message()));
  }
  return StatusFromWire(status.error_code(), status.error_message());
}

absl::Status StatusFromWire(int code, absl::string_view message) {
  if (code < 0 || code > kLastCode) return absl::UnknownError(message);
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

}  // namespace phasor
