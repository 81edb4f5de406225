// SPDX-License-Identifier: Apache-2.0
// Headers of .safetensors files: what the format allows is read, anything else is refused.
#include "kernels/tensor/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string File(const std::string& json, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(json.size() >> 8 * i));
  return file + json + std::string(data_bytes, 'x');
}

auto ParseFile(const std::string& file) {
  return ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "f.safetensors");
}

constexpr char kTwo[] = R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
                        R"("__metadata__":{"format":"pt"},)"
                        R"("a":{"dtype":"BF16","shape":[1,4,1],"data_offsets":[0,8]}}  )";

TEST(SafetensorsTest, TensorsComeInTheOrderOfTheirData) {
  const std::string file = File(kTwo, 32);
  const auto tensors = ParseFile(file);
  ASSERT_THAT(tensors, IsOk());
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].tensor.dtype, Dtype::kBFloat16);
  EXPECT_THAT((*tensors)[0].tensor.shape, ElementsAre(1, 4, 1));
  EXPECT_EQ((*tensors)[0].data_begin, static_cast<int64_t>(file.size()) - 32);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].data_bytes, 24);
}

TEST(SafetensorsTest, WhatWeWriteIsReadBack) {
  for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    const TensorDesc tensor{dtype, {5, 7}, {}};
    const std::string header = FormatSafetensorsHeader("table", tensor);
    EXPECT_EQ(header.size() % 8, 0u);
    const auto tensors = ParseFile(header + std::string(35 * SizeOf(dtype), 'x'));
    ASSERT_THAT(tensors, IsOk());
    EXPECT_EQ((*tensors)[0].name, "table");
    EXPECT_EQ((*tensors)[0].tensor.dtype, dtype);
    EXPECT_EQ((*tensors)[0].data_begin, static_cast<int64_t>(header.size()));
  }
}

TEST(SafetensorsTest, RejectsHeadersThatAreNotOfTheFormat) {
  for (const char* json : {
           "",
           "{",
           "[]",
           "7",
           R"({"a":1})",
           R"({"a":{"dtype":"F32","shape":[2]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})",
           R"({"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})",
           R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})",
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}})",
           R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"x":1}})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":[]})",
           R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
           "{\"\xFF\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
       }) {
    EXPECT_THAT(ParseFile(File(json, 8)), StatusIs(kInvalid, HasSubstr("f.safetensors"))) << json;
  }
}

TEST(SafetensorsTest, OtherTypesAreReadWhereTheyAreAccepted) {
  const std::pair<const char*, int64_t> types[] = {{"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1},
                                                   {"I8", 1},      {"BOOL", 1},    {"U16", 2},
                                                   {"I32", 4},     {"I64", 8}};
  for (const auto& [type, bytes] : types) {
    const std::string text = std::string(R"({"a":{"dtype":")") + type +
                             R"(","shape":[3],"data_offsets":[0,)" + std::to_string(3 * bytes) +
                             "]}}";
    std::string file(8, '\0');
    file[0] = static_cast<char>(text.size());
    file += text + std::string(static_cast<size_t>(3 * bytes), 'x');
    const auto size = static_cast<int64_t>(file.size());
    EXPECT_FALSE(ParseSafetensorsHeader(file, size, "f").ok()) << type;
    const auto tensors = ParseSafetensorsHeader(file, size, "f", OtherTypes::kAccept);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_EQ((*tensors)[0].other_type, type);
    EXPECT_EQ((*tensors)[0].data_bytes, 3 * bytes);
    // The size of an element is still checked.
    EXPECT_FALSE(
        ParseSafetensorsHeader(file.substr(0, file.size() - 1), size - 1, "f", OtherTypes::kAccept)
            .ok());
  }
}

TEST(SafetensorsTest, RejectsTruncationsAtEveryByte) {
  const std::string file = File(kTwo, 32);
  ASSERT_THAT(ParseFile(file), IsOk());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(ParseFile(file.substr(0, size)).status().code(), kInvalid) << size;
  }
}

TEST(SafetensorsTest, RejectsHugeHeaderLengthsAndDeepNesting) {
  EXPECT_THAT(ParseFile(std::string(8, '\xFF') + "{}"), StatusIs(kInvalid, HasSubstr("header of")));
  EXPECT_EQ(ParseFile(File(std::string(1 << 20, '['), 8)).status().code(), kInvalid);
  std::string nested;
  for (int i = 0; i < 100000; ++i) nested += "{\"a\":";
  EXPECT_EQ(ParseFile(File(nested, 8)).status().code(), kInvalid);
}

TEST(SafetensorsTest, MutatedHeadersNeverClaimBytesBeyondTheFile) {
  const std::string good = File(kTwo, 32);
  std::mt19937 random(11);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % file.size();
      switch (random() % 3) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 4);
          break;
        default:
          file.insert(at, 1, "0123456789[]{},:\""[random() % 17]);
      }
      if (file.empty()) file = "x";
    }
    const auto tensors = ParseFile(file);
    if (!tensors.ok()) continue;
    ++accepted;
    for (const NamedTensor& tensor : *tensors) {
      EXPECT_GE(tensor.data_begin, 8);
      EXPECT_LE(tensor.data_begin + tensor.data_bytes, static_cast<int64_t>(file.size()));
      EXPECT_EQ(*DenseBytes(tensor.tensor, ""), tensor.data_bytes);
    }
  }
  EXPECT_GT(accepted, 10);  // changes of names and data are allowed
}

}  // namespace
}  // namespace phasor
