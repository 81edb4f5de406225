// SPDX-License-Identifier: Apache-2.0
// Compares the codec with protobuf's parser, for every message with raw entries: both accept the
// same bytes and read the same values, however the bytes are broken and cut.
//
// PHASOR_CODEC_FUZZ_RUNS: number of messages, 200,000 unless set. PHASOR_FUZZ_SEED: the first seed.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/empty.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "inference/grpc_service.pb.h"
#include "phasor/v1/attention_bias.pb.h"
#include "phasor/v1/move_keys.pb.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/table_service.pb.h"
#include "proto/protobuf_log.h"
#include "proto/raw_message.h"
#include "tests/proto/message_fuzzer.h"

namespace phasor {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Piece = absl::Span<const std::byte>;

constexpr size_t kLargestKept = 512;
constexpr size_t kKeptMessages = 64;

// A message type with raw entries, and serialized messages of it to begin with.
struct Type {
  const FieldDescriptor* raw;
  std::unique_ptr<Message> whole;   // by protobuf
  std::unique_ptr<Message> walked;  // by the codec
  std::vector<std::string> kept;
};

bool IsRaw(const FieldDescriptor& field) {
  return field.is_repeated() && field.type() == FieldDescriptor::TYPE_BYTES &&
         (field.name() == "raw" || field.name() == "raw_input_contents" ||
          field.name() == "raw_output_contents");
}

std::vector<Type> AllTypes() {
  std::vector<Type> types;
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
        types.push_back({descriptor->field(j),
                         std::unique_ptr<Message>(prototype->New()),
                         std::unique_ptr<Message>(prototype->New()),
                         {}});
      }
    }
  }
  return types;
}

// The corpus of tests/fuzz: two bytes, then a request.
std::vector<std::string> Corpus() {
  std::vector<std::string> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(PHASOR_FUZZ_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input((std::istreambuf_iterator<char>(file)),
                            std::istreambuf_iterator<char>());
    if (input.size() > 2) corpus.push_back(input.substr(2));
  }
  std::sort(corpus.begin(), corpus.end());
  return corpus;
}

// A message in pieces that lie in memory from the last to the first, so that reading beyond one
// gives other bytes.
class CutMessage {
 public:
  CutMessage(const std::string& bytes, testing::MessageFuzzer& random) : memory_(bytes.size()) {
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
  EXPECT_TRUE(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

// To a message without fields every field is unknown: its parser judges the top level alone.
bool IsSequenceOfFields(const std::string& bytes) {
  static auto* const message = new google::protobuf::Empty;
  return message->ParseFromString(bytes);
}

// Reads the message into type.walked with the codec. False: it is refused.
bool ReadByCodec(const Type& type, const std::string& bytes, const CutMessage& cut) {
  const auto split =
      WalkMessage(cut.pieces(), {.max_header_bytes = std::numeric_limits<int64_t>::max(),
                                 .max_raw_entries = std::numeric_limits<int64_t>::max(),
                                 .raw_field = static_cast<uint32_t>(type.raw->number())});
  EXPECT_EQ(split.ok(), IsSequenceOfFields(bytes)) << split.status();
  if (!split.ok()) {
    EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
    return false;
  }
  if (!type.walked->ParseFromString(split->header)) return false;
  const auto& reflection = *type.walked->GetReflection();
  EXPECT_EQ(reflection.FieldSize(*type.walked, type.raw), 0) << "raw entries in the header";
  for (const PieceList& entry : split->raw) {
    for (const Piece part : entry) EXPECT_TRUE(cut.Holds(part)) << "a copied entry";
    reflection.AddString(type.walked.get(), type.raw, JoinedBytes(entry));
  }
  return true;
}

struct Counts {
  uint64_t accepted = 0;
  uint64_t with_raw = 0;
  uint64_t with_unknown = 0;
};

// Whether protobuf takes the bytes; the codec must do the same.
bool Compare(const Type& type, const std::string& bytes, testing::MessageFuzzer& random,
             Counts* counts) {
  const CutMessage cut(bytes, random);
  const bool taken = type.whole->ParseFromString(bytes);
  EXPECT_EQ(ReadByCodec(type, bytes, cut), taken);
  if (!taken) return false;
  EXPECT_EQ(Canonical(*type.walked), Canonical(*type.whole));
  const auto& reflection = *type.whole->GetReflection();
  ++counts->accepted;
  if (reflection.FieldSize(*type.whole, type.raw) > 0) ++counts->with_raw;
  if (!reflection.GetUnknownFields(*type.whole).empty()) ++counts->with_unknown;
  return true;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RawMessageFuzzTest : public ::testing::Test {
 protected:
  RawMessageFuzzTest() {
    SilenceProtobufLog();
    for (Type& type : types_) {
      type.kept = Corpus();
      while (type.kept.size() < kKeptMessages) {
        type.whole->Clear();
        random_.Fill(type.whole.get(), 4);
        std::string bytes = type.whole->SerializeAsString();
        if (bytes.size() <= kLargestKept) type.kept.push_back(std::move(bytes));
      }
    }
  }

  const uint64_t seed_ = FromEnvironment("PHASOR_FUZZ_SEED", 1);
  testing::MessageFuzzer random_{seed_};
  std::vector<Type> types_ = AllTypes();
};

TEST_F(RawMessageFuzzTest, CodecReadsWhatWasSerialized) {
  EXPECT_GE(types_.size(), 19u);
  Counts counts;
  uint64_t messages = 0;
  for (const Type& type : types_) {
    for (const std::string& bytes : type.kept) {
      for (int i = 0; i < 8; ++i) Compare(type, bytes, random_, &counts);
      messages += 8;
    }
  }
  EXPECT_GT(counts.accepted * 2, messages);  // the corpus has the requests of other types
}

TEST_F(RawMessageFuzzTest, CodecTakesWhatProtobufTakesAndReadsTheSame) {
  const uint64_t runs = FromEnvironment("PHASOR_CODEC_FUZZ_RUNS", 200'000);
  Counts counts;
  for (uint64_t run = 0; run < runs && !HasFailure(); ++run) {
    Type& type = types_[random_.Below(types_.size())];
    std::string& kept = type.kept[random_.Below(type.kept.size())];
    std::string bytes = kept;
    for (uint64_t changes = 1 + random_.Below(3); changes > 0; --changes) {
      random_.Change(type.kept[random_.Below(type.kept.size())],
                     static_cast<uint32_t>(type.raw->number()), &bytes);
    }
    const bool taken = Compare(type, bytes, random_, &counts);
    if (HasFailure()) {
      ADD_FAILURE() << type.raw->full_name() << ", PHASOR_FUZZ_SEED=" << seed_ << ", run " << run
                    << ": " << absl::CHexEscape(bytes);
    }
    // Changes add up in messages that are still whole.
    if (taken && bytes.size() <= kLargestKept && random_.Below(8) == 0) kept = std::move(bytes);
  }
  std::cout << runs << " messages from seed " << seed_ << ", " << counts.accepted << " accepted, "
            << counts.with_raw << " with raw entries, " << counts.with_unknown
            << " with unknown fields\n";
  // Otherwise one side of the comparison would hardly be tested.
  EXPECT_GT(counts.accepted * 10, runs);
  EXPECT_LT(counts.accepted * 10, runs * 9);
  EXPECT_GT(counts.with_raw * 20, runs);
  EXPECT_GT(counts.with_unknown * 20, runs);
}

}  // namespace
}  // namespace phasor
