// SPDX-License-Identifier: Apache-2.0
// Tests that protobuf writes nothing to standard error.
#include "proto/protobuf_log.h"

#include <gtest/gtest.h>

#include <string>

#include "phasor/v1/spec.pb.h"

namespace phasor {
namespace {

std::string StandardErrorOfTextThatIsNotUtf8() {
  v1::Spec spec;
  spec.set_preset("\xff");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(spec.SerializeAsString().empty());
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProtobufLogTest, TextThatIsNotUtf8IsLoggedUnlessSilenced) {
  EXPECT_NE(StandardErrorOfTextThatIsNotUtf8(), "");
  SilenceProtobufLog();
  SilenceProtobufLog();
  EXPECT_EQ(StandardErrorOfTextThatIsNotUtf8(), "");
}

}  // namespace
}  // namespace phasor
