// SPDX-License-Identifier: Apache-2.0
// Reads bytes with the codec and with protobuf.
#include "tests/proto/codec_comparison.h"

#include <google/protobuf/empty.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "inference/grpc_service.pb.h"
#include "phasor/v1/attention_bias.pb.h"
#include "phasor/v1/move_keys.pb.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/table_service.pb.h"
#include "proto/raw_message.h"

namespace phasor::testing {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Piece = absl::Span<const std::byte>;

bool IsRaw(const FieldDescriptor& field) {
  return field.is_repeated() && field.type() == FieldDescriptor::TYPE_BYTES &&
         (field.name() == "raw" || field.name() == "raw_input_contents" ||
          field.name() == "raw_output_contents");
}

// A message in pieces that lie in memory from the last to the first, so that reading beyond one
// gives other bytes.
class CutMessage {
 public:
  CutMessage(const std::string& bytes, MessageFuzzer& random) : memory_(bytes.size()) {
    const uint64_t largest = 1 + random.Below(1 + random.Below(2 * bytes.size() + 1));
    size_t at = 0;
    while (at < bytes.size()) {
      if (random.Below(8) == 0) pieces_.emplace_back();
      const size_t size = std::min<size_t>(1 + random.Below(largest), bytes.size() - at);
      std::byte* const place = memory_.data() + bytes.size() - at - size;
      std::memcpy(place, bytes.data() + at, size);
      pieces_.emplace_back(place, size);
      at += size;
    }
  }

  Pieces pieces() const { return pieces_; }
  bool Holds(Piece piece) const {
    return piece.data() >= memory_.data() &&
           piece.data() + piece.size() <= memory_.data() + memory_.size();
  }

 private:
  std::vector<std::byte> memory_;
  std::vector<Piece> pieces_;
};

std::string JoinedBytes(const PieceList& entry) {
  std::string bytes;
  for (const Piece part : entry) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return bytes;
}

// Equal for equal messages, unknown fields included.
std::string Canonical(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  static_cast<void>(message.SerializeToCodedStream(&coded));  // nothing is required
  coded.Trim();
  return bytes;
}

// To a message without fields every field is unknown: its parser judges the top level alone.
bool IsSequenceOfFields(const std::string& bytes) {
  static auto* const message = new google::protobuf::Empty;
  return message->ParseFromString(bytes);
}

// Reads the message into type.walked with the codec; `taken`: whether it is accepted. Returns what
// is wrong.
std::string ReadByCodec(const RawType& type, const std::string& bytes, const CutMessage& cut,
                        bool* taken) {
  const auto split =
      WalkMessage(cut.pieces(), {.max_header_bytes = std::numeric_limits<int64_t>::max(),
                                 .max_raw_entries = std::numeric_limits<int64_t>::max(),
                                 .raw_field = static_cast<uint32_t>(type.raw->number())});
  *taken = false;
  if (split.ok() != IsSequenceOfFields(bytes)) {
    return absl::StrCat("the top level: ", split.status().ToString());
  }
  if (!split.ok()) {
    return absl::IsInvalidArgument(split.status()) ? "" : split.status().ToString();
  }
  if (!type.walked->ParseFromString(split->header)) return "";
  const auto& reflection = *type.walked->GetReflection();
  if (reflection.FieldSize(*type.walked, type.raw) != 0) return "raw entries in the header";
  for (const PieceList& entry : split->raw) {
    for (const Piece part : entry) {
      if (!cut.Holds(part)) return "a copied entry";
    }
    reflection.AddString(type.walked.get(), type.raw, JoinedBytes(entry));
  }
  *taken = true;
  return "";
}

}  // namespace

std::vector<RawType> AllRawTypes() {
  std::vector<RawType> types;
  for (const auto* file :
       {v1::EncodeRequest::descriptor()->file(), v1::AttentionBiasRequest::descriptor()->file(),
        v1::CreateTableRequest::descriptor()->file(), v1::MoveKeysRequest::descriptor()->file(),
        inference::ModelInferRequest::descriptor()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      const auto* const descriptor = file->message_type(i);
      const Message* const prototype =
          google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor);
      for (int j = 0; j < descriptor->field_count(); ++j) {
        if (!IsRaw(*descriptor->field(j))) continue;
        types.push_back({descriptor->field(j), std::unique_ptr<Message>(prototype->New()),
                         std::unique_ptr<Message>(prototype->New())});
      }
    }
  }
  return types;
}

Comparison CompareCodecs(const RawType& type, const std::string& bytes, MessageFuzzer& random) {
  const CutMessage cut(bytes, random);
  Comparison result;
  result.taken = type.whole->ParseFromString(bytes);
  bool taken;
  result.difference = ReadByCodec(type, bytes, cut, &taken);
  if (!result.difference.empty()) return result;
  if (taken != result.taken) result.difference = taken ? "only the codec takes it" : "refused";
  if (!taken || !result.taken) return result;
  if (Canonical(*type.walked) != Canonical(*type.whole)) result.difference = "other values";
  const auto& reflection = *type.whole->GetReflection();
  result.with_raw = reflection.FieldSize(*type.whole, type.raw) > 0;
  result.with_unknown = !reflection.GetUnknownFields(*type.whole).empty();
  return result;
}

}  // namespace phasor::testing
