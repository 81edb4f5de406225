// SPDX-License-Identifier: Apache-2.0
// Compares the codec with protobuf's parser, for every message with raw entries: both accept the
// same bytes and read the same values, however the bytes are broken and cut.
//
// PHASOR_CODEC_FUZZ_RUNS: number of messages, 200,000 unless set. PHASOR_FUZZ_SEED: the first seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "proto/protobuf_log.h"
#include "tests/proto/codec_comparison.h"
#include "tests/proto/message_fuzzer.h"

namespace phasor {
namespace {

constexpr size_t kLargestKept = 512;
constexpr size_t kKeptMessages = 64;

// A message type, and serialized messages of it to begin with.
struct Type : testing::RawType {
  std::vector<std::string> kept;
};

std::vector<Type> AllTypes() {
  std::vector<Type> types;
  for (testing::RawType& type : testing::AllRawTypes()) types.push_back({std::move(type), {}});
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

struct Counts {
  uint64_t accepted = 0;
  uint64_t with_raw = 0;
  uint64_t with_unknown = 0;
};

// Whether protobuf takes the bytes; the codec must do the same.
bool Compare(const Type& type, const std::string& bytes, testing::MessageFuzzer& random,
             Counts* counts) {
  const testing::Comparison result = testing::CompareCodecs(type, bytes, random);
  EXPECT_EQ(result.difference, "");
  if (result.taken) ++counts->accepted;
  if (result.with_raw) ++counts->with_raw;
  if (result.with_unknown) ++counts->with_unknown;
  return result.taken;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RawMessageFuzzTest : public ::testing::Test {
 protected:
  RawMessageFuzzTest() {
    SilenceProtobufLog();  // it logs every string that is not UTF-8
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
