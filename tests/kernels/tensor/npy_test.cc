// SPDX-License-Identifier: Apache-2.0
// Headers of .npy files: those that NumPy writes are read, all others are refused.
#include "kernels/tensor/npy.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;

// A file of version 1 as NumPy writes it.
std::string File(const std::string& dictionary, const std::string& data) {
  std::string text = dictionary + "\n";
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(text.size() & 0xFF);
  file += static_cast<char>(text.size() >> 8);
  return file + text + data;
}

absl::StatusOr<NpyHeader> Parse(const std::string& file, bool u2_as_bf16 = false) {
  return ParseNpyHeader(file, static_cast<int64_t>(file.size()), u2_as_bf16, "f.npy");
}

TEST(NpyTest, DataBeginsAlignedAsNumPyWritesIt) {
  const std::string header = FormatNpyHeader({Dtype::kFloat32, {3}, {}});
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(header.substr(10, 58), "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } ");
  EXPECT_EQ(header.back(), '\n');
}

TEST(NpyTest, ReadsAllVersionsAndSpellings) {
  const std::string dictionary = "{\"shape\":(2,),'fortran_order' : False ,\"descr\":'<f4'}";
  auto header = Parse(File(dictionary, std::string(8, 'x')));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->tensor.shape, ElementsAre(2));
  std::string two("\x93NUMPY\x02\x00", 8);
  two += static_cast<char>(dictionary.size());
  two += std::string(3, '\0') + dictionary + std::string(8, 'x');
  header = Parse(two);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->data_begin, static_cast<int64_t>(two.size()) - 8);
  two[6] = 3;
  EXPECT_TRUE(Parse(two).ok());
}

TEST(NpyTest, BrainFloatsNeedTheFlag) {
  const std::string file = File("{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }", "xx");
  EXPECT_THAT(std::string(Parse(file).status().message()), HasSubstr("--u2-as-bf16"));
  EXPECT_EQ(Parse(file, true)->tensor.dtype, Dtype::kBFloat16);
}

TEST(NpyTest, BytesAreReadWhereTheyAreAskedFor) {
  for (const std::string type : {"|u1", "|i1"}) {
    const std::string file =
        File("{'descr': '" + type + "', 'fortran_order': False, 'shape': (3,), }", "xxx");
    const auto size = static_cast<int64_t>(file.size());
    EXPECT_FALSE(ParseNpyHeader(file, size, false, "f.npy").ok());
    const auto header = ParseNpyHeader(file, size, false, "f.npy", /*bytes=*/true);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->data_bytes, 3);
    EXPECT_FALSE(ParseNpyHeader(file, size - 1, false, "f.npy", /*bytes=*/true).ok());
  }
}

TEST(NpyTest, RejectsWhatItCannotRead) {
  const std::string data(64, 'x');
  for (const char* dictionary : {
           "{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }",
           "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }",
           "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
           "{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }",
           "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (17,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': 2, }",
           "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }",
           "{'descr': '<f4', 'fortran_order': False, }",
           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 'x', }",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x",
           "{'descr: '<f4', 'fortran_order': False, 'shape': (2,), }",
           "{",
           "",
       }) {
    EXPECT_EQ(Parse(File(dictionary, data)).status().code(), kInvalid) << dictionary;
  }
}

TEST(NpyTest, RejectsTruncationsAtEveryByte) {
  const std::string file =
      File("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", std::string(8, 'x'));
  ASSERT_TRUE(Parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(Parse(file.substr(0, size)).status().code(), kInvalid) << size;
  }
}

TEST(NpyTest, RejectsHugeHeaderLengths) {
  std::string file("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12);
  EXPECT_EQ(Parse(file + std::string(100, ' ')).status().code(), kInvalid);
  file[6] = 9;
  EXPECT_EQ(Parse(file).status().code(), kInvalid);
}

TEST(NpyTest, SurvivesFlippedBytes) {
  const std::string good =
      File("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }", std::string(48, 'x'));
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string file = good;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      file[random() % file.size()] = static_cast<char>(random());
    }
    auto header = Parse(file, true);
    if (header.ok()) {
      EXPECT_LE(header->data_begin + header->data_bytes, static_cast<int64_t>(file.size()));
    }
  }
}

}  // namespace
}  // namespace phasor
