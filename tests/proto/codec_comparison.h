// SPDX-License-Identifier: Apache-2.0
// Compares the codec of raw messages with protobuf's parser: both must accept the same bytes and
// read the same values, however the bytes are broken and cut.
#ifndef PHASOR_TESTS_PROTO_CODEC_COMPARISON_H_
#define PHASOR_TESTS_PROTO_CODEC_COMPARISON_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/proto/message_fuzzer.h"

namespace phasor::testing {

// A message type with raw entries, and a message for either parser.
struct RawType {
  const google::protobuf::FieldDescriptor* raw;
  std::unique_ptr<google::protobuf::Message> whole;   // by protobuf
  std::unique_ptr<google::protobuf::Message> walked;  // by the codec
};

std::vector<RawType> AllRawTypes();

struct Comparison {
  std::string difference;  // empty: both read the same
  bool taken = false;      // by protobuf
  bool with_raw = false;
  bool with_unknown = false;
};

// Cuts the bytes at random places. Threads: one at a time for each type.
Comparison CompareCodecs(const RawType& type, const std::string& bytes, MessageFuzzer& random);

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_PROTO_CODEC_COMPARISON_H_
