// SPDX-License-Identifier: Apache-2.0
// Turns off protobuf's own log (before 22), or Abseil's on standard error.
#include "proto/protobuf_log.h"

#include <google/protobuf/stubs/common.h>

#if GOOGLE_PROTOBUF_VERSION < 4022000
#include <google/protobuf/stubs/logging.h>
#else
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#endif

namespace phasor {

void SilenceProtobufLog() {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  google::protobuf::SetLogHandler(nullptr);
#else
  static const bool once = [] {
    absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal);
    absl::InitializeLog();  // before it, the threshold is ignored
    return true;
  }();
  static_cast<void>(once);
#endif
}

}  // namespace phasor
