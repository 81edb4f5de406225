// SPDX-License-Identifier: Apache-2.0
// Writes serialized messages field by field, where protobuf would need a message in memory first.
#ifndef PHASOR_PROTO_FIELD_WRITER_H_
#define PHASOR_PROTO_FIELD_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace phasor {

// Writes the bytes that protobuf writes. Threads: one.
class FieldWriter {
 public:
  // Goes on after `begun`. `bytes`: about how many will be written; it grows when there are more.
  explicit FieldWriter(size_t bytes, std::string begun = {});

  // Writes a number without a tag, as in packed lists.
  void Number(uint64_t value) {
    MakeRoom(kMostVarintBytes);
    Put(value);
  }
  void Varint(uint32_t field, uint64_t value) {
    MakeRoom(2 * kMostVarintBytes);
    PutTag(field, kVarint);
    Put(value);
  }
  void Bytes(uint32_t field, std::string_view value) {
    MakeRoom(2 * kMostVarintBytes + value.size());
    PutTag(field, kLength);
    Put(value.size());
    PutAll(value);
  }
  // Fields that are serialized already.
  void Append(std::string_view fields) {
    MakeRoom(fields.size());
    PutAll(fields);
  }
  // The last `bytes` bytes once more.
  void Repeat(size_t bytes) {
    MakeRoom(bytes);
    std::memcpy(at_, at_ - bytes, bytes);
    at_ += bytes;
  }
  // A message whose fields `write()` writes with this writer.
  template <typename Write>
  void Message(uint32_t field, Write write) {
    MakeRoom(2 * kMostVarintBytes);
    PutTag(field, kLength);
    const size_t length = size();
    ++at_;  // the length of most messages has one byte
    write();
    const size_t bytes = size() - length - 1;
    if (bytes < 0x80) {
      text_[length] = static_cast<char>(bytes);
    } else {
      WriteLength(length, bytes);
    }
  }

  // Bytes written so far.
  size_t size() const { return static_cast<size_t>(at_ - text_.data()); }

  // The message. Nothing can be written after it.
  std::string Finish() &&;

 private:
  static constexpr size_t kMostVarintBytes = 10;
  enum WireType : uint32_t { kVarint = 0, kLength = 2 };

  // The functions below need room for what they write.
  void MakeRoom(size_t bytes) {
    if (static_cast<size_t>(end_ - at_) < bytes) Grow(bytes);
  }
  void PutTag(uint32_t field, WireType type) { Put(field << 3 | type); }
  void Put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<char>(value | 0x80);
    *at_++ = static_cast<char>(value);
  }
  void PutAll(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }

  void Grow(size_t bytes);
  // Replaces the byte of a length that needs more than one.
  void WriteLength(size_t at, size_t bytes);

  std::string text_;  // what is written, and room
  char* at_;          // where the next byte goes
  char* end_;
};

}  // namespace phasor

#endif  // PHASOR_PROTO_FIELD_WRITER_H_
