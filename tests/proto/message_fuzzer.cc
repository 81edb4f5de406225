// SPDX-License-Identifier: Apache-2.0
// Makes serialized messages, valid and broken. Uses protobuf's own functions to find the fields.
#include "tests/proto/message_fuzzer.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <iterator>

namespace phasor::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t kGroupStart = 3;
constexpr uint32_t kGroupEnd = 4;

}  // namespace

void MessageFuzzer::Fill(Message* message, int depth) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (Below(3) == 0 || (is_message && depth == 0)) continue;
    for (uint64_t n = field->is_repeated() ? Below(4) : 1; n > 0; --n) {
      SetField(message, field, depth);
    }
  }
}

void MessageFuzzer::SetField(Message* message, const FieldDescriptor* field, int depth) {
  const Reflection& r = *message->GetReflection();
  const bool many = field->is_repeated();
  const uint64_t n = Number();
  const auto set = [&](auto add, auto assign, auto value) {
    many ? (r.*add)(message, field, value) : (r.*assign)(message, field, value);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(&Reflection::AddInt32, &Reflection::SetInt32, static_cast<int32_t>(n));
    case FieldDescriptor::CPPTYPE_INT64:
      return set(&Reflection::AddInt64, &Reflection::SetInt64, static_cast<int64_t>(n));
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(&Reflection::AddUInt32, &Reflection::SetUInt32, static_cast<uint32_t>(n));
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(&Reflection::AddUInt64, &Reflection::SetUInt64, n);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set(&Reflection::AddDouble, &Reflection::SetDouble, static_cast<double>(n));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(&Reflection::AddFloat, &Reflection::SetFloat, static_cast<float>(n));
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(&Reflection::AddBool, &Reflection::SetBool, n % 2 == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(&Reflection::AddEnumValue, &Reflection::SetEnumValue, static_cast<int>(n % 8));
    case FieldDescriptor::CPPTYPE_STRING:
      return many ? r.AddString(message, field, Text()) : r.SetString(message, field, Text());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      Fill(many ? r.AddMessage(message, field) : r.MutableMessage(message, field), depth - 1);
  }
}

std::string MessageFuzzer::Text() {
  const size_t size = Below(16) == 0 ? Below(400) : Below(12);
  return std::string(size, static_cast<char>('a' + Below(26)));
}

uint64_t MessageFuzzer::Number() {
  // Around the bounds of tags, lengths and varints.
  static constexpr uint64_t kInteresting[] = {0x7F,       0x80,
                                              0x3FFF,     0x4000,
                                              0x7FFFFFEE, 0x7FFFFFEF,
                                              0x7FFFFFF0, 0x7FFFFFFF,
                                              0x80000000, 0xFFFFFFFF,
                                              1ull << 32, (1ull << 32) + 2,
                                              1ull << 35, (1ull << 35) + 2,
                                              1ull << 56, 1ull << 63,
                                              ~0ull};
  switch (Below(4)) {
    case 0:
      return kInteresting[Below(std::size(kInteresting))];
    case 1:
      return random_() >> Below(64);
    default:
      return Below(12);
  }
}

std::string MessageFuzzer::RandomBytes() {
  std::string bytes(1 + Below(12), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random_());
  return bytes;
}

// Sometimes longer than it must be, and with bits that no number has.
std::string MessageFuzzer::Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  if (Below(8) != 0) return bytes;
  bytes.back() = static_cast<char>(bytes.back() | 0x80);
  for (uint64_t n = Below(11); n > 0; --n) bytes.push_back('\x80');
  bytes.push_back(static_cast<char>(Below(2) == 0 ? 0 : Below(128)));
  return bytes;
}

std::string MessageFuzzer::Tag(uint32_t raw_field) {
  static constexpr uint64_t kFields[] = {0, 1, 2, 15, 16, (1u << 29) - 1, 1u << 29};
  static constexpr uint64_t kTypes[] = {0, 1, 2, 2, 5};
  const uint64_t field = Below(8) == 0   ? kFields[Below(std::size(kFields))]
                         : Below(2) == 0 ? raw_field
                                         : 1 + Below(20);
  const uint64_t type = Below(8) == 0 ? Below(8) : kTypes[Below(std::size(kTypes))];
  return Varint(field << 3 | type);
}

std::string MessageFuzzer::Field(uint32_t raw_field, int depth) {
  if (depth > 0 && Below(4) == 0) return Group(raw_field, depth - 1);
  const std::string tag = Tag(raw_field);
  switch (Below(12) == 0 ? Below(8) : static_cast<uint64_t>(tag[0] & 7)) {
    case 0:
      return tag + Varint(random_() >> Below(64));
    case 1:
      return tag + std::string(8, 'x');
    case 2: {
      const std::string text = Text();
      return tag + Varint(Below(16) == 0 ? Number() : text.size()) + text;
    }
    case 5:
      return tag + std::string(4, 'x');
    default:
      return tag;
  }
}

std::string MessageFuzzer::Group(uint32_t raw_field, int depth) {
  const uint64_t field = Below(3) == 0 ? raw_field : 1 + Below(20);
  std::string group = Varint(field << 3 | kGroupStart);
  for (uint64_t n = Below(3); n > 0; --n) group += Field(raw_field, depth);
  const uint64_t ends = Below(12) == 0 ? 1 + Below(20) : field;
  return group + Varint(ends << 3 | kGroupEnd);
}

// As many inside one another as the parser takes, or one more.
std::string MessageFuzzer::DeepGroups() {
  const size_t count = 98 + Below(5);
  const char start = '\x0B';
  const char end = '\x0C';
  return std::string(count, start) + std::string(count, end);
}

size_t MessageFuzzer::Boundary(const std::string& bytes) {
  std::vector<size_t> places = {0};
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                          static_cast<int>(bytes.size()));
  while (const uint32_t tag = stream.ReadTag()) {
    if (!WireFormatLite::SkipField(&stream, tag)) break;
    places.push_back(static_cast<size_t>(stream.CurrentPosition()));
  }
  return places[Below(places.size())];
}

void MessageFuzzer::Change(std::string_view other, uint32_t raw_field, std::string* bytes) {
  if (bytes->empty() || Below(2) == 0) return ChangeFields(other, raw_field, bytes);
  ChangeBytes(other, bytes);
}

void MessageFuzzer::ChangeBytes(std::string_view other, std::string* bytes) {
  const size_t at = Below(bytes->size());
  const size_t length = std::min<size_t>(1 + Below(16), bytes->size() - at);
  switch (Below(9)) {
    case 0:
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << Below(8)));
      break;
    case 1:
      (*bytes)[at] = static_cast<char>(random_());
      break;
    case 2:
      bytes->insert(at, RandomBytes());
      break;
    case 3:
      bytes->erase(at, length);
      break;
    case 4:
      bytes->resize(at);
      break;
    case 5:
      bytes->insert(at, bytes->substr(at, length));
      break;
    case 6:  // the head of this and the tail of the other
      bytes->resize(at);
      bytes->append(other.substr(other.empty() ? 0 : Below(other.size())));
      break;
    case 7:  // a byte as a varint of more bytes
      bytes->replace(at, 1, Varint(static_cast<uint8_t>((*bytes)[at])));
      break;
    default:  // a group around a part
      bytes->insert(at + length, "\x1C");
      bytes->insert(at, "\x1B");
  }
}

void MessageFuzzer::ChangeFields(std::string_view other, uint32_t raw_field, std::string* bytes) {
  const size_t at = Boundary(*bytes);
  switch (Below(9)) {
    case 0:  // both, as one message: they are merged
      bytes->append(other);
      break;
    case 1:
      bytes->insert(at, other);
      break;
    case 2:
    case 3:
      bytes->insert(at, Field(raw_field, 3));
      break;
    case 4:
      bytes->insert(at, DeepGroups());
      break;
    case 5: {  // the bytes between two fields once more
      const size_t to = Boundary(*bytes);
      const size_t from = std::min(at, to);
      bytes->insert(Boundary(*bytes), bytes->substr(from, std::max(at, to) - from));
      break;
    }
    case 6:  // another wire type
      if (at < bytes->size()) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 + Below(7)));
      break;
    case 7: {  // a group around fields
      const size_t to = Boundary(*bytes);
      bytes->insert(std::max(at, to), "\x1C");
      bytes->insert(std::min(at, to), "\x1B");
      break;
    }
    default:
      ChangeLength(bytes);
  }
}

// Writes the tag and the length of a field again, most often with the same values.
void MessageFuzzer::ChangeLength(std::string* bytes) {
  const size_t at = Boundary(*bytes);
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes->data()) + at,
                          static_cast<int>(bytes->size() - at));
  const uint32_t tag = stream.ReadTag();
  uint64_t length = 0;
  if (tag == 0 || !stream.ReadVarint64(&length)) return;
  const auto prefix = static_cast<size_t>(stream.CurrentPosition());
  std::string written = Varint(tag);
  written += Varint(Below(2) == 0 ? length : Below(2) == 0 ? length + Below(3) - 1 : Number());
  bytes->replace(at, prefix, written);
}

}  // namespace phasor::testing
