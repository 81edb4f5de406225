// SPDX-License-Identifier: Apache-2.0
// Random serialized messages for the differential test of the codec: valid ones, made by
// reflection, and ones that are broken at the corner cases of the wire format.
#ifndef PHASOR_TESTS_PROTO_MESSAGE_FUZZER_H_
#define PHASOR_TESTS_PROTO_MESSAGE_FUZZER_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace phasor::testing {

// Deterministic: equal seeds give equal sequences. Threads: one at a time.
class MessageFuzzer {
 public:
  explicit MessageFuzzer(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }
  // Sets fields of `message` to random values.
  void Fill(google::protobuf::Message* message, int depth);
  // Changes serialized bytes. `other` is a message to take parts of; `raw_field` is the number of
  // the field that the codec leaves in place.
  void Change(std::string_view other, uint32_t raw_field, std::string* bytes);

 private:
  void SetField(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field,
                int depth);
  std::string Text();
  uint64_t Number();
  std::string RandomBytes();
  std::string Varint(uint64_t value);
  std::string Tag(uint32_t raw_field);
  // Tag and value. The value mostly fits the tag.
  std::string Field(uint32_t raw_field, int depth);
  std::string Group(uint32_t raw_field, int depth);
  std::string DeepGroups();
  // A place where a field of the top level begins, or the end.
  size_t Boundary(const std::string& bytes);
  void ChangeBytes(std::string_view other, std::string* bytes);
  void ChangeFields(std::string_view other, uint32_t raw_field, std::string* bytes);
  void ChangeLength(std::string* bytes);

  std::mt19937_64 random_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_PROTO_MESSAGE_FUZZER_H_
