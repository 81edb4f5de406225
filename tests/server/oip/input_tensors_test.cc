// SPDX-License-Identifier: Apache-2.0
// Tests where the bytes of inputs are found, and that their number fits type and shape.
#include "server/oip/input_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/server/oip/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;

class InputTensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<InputTensor>> Read() {
    raw_ = RawOf(request_);
    return ReadInputs(request_, raw_);
  }

  inference::ModelInferRequest request_ = RotateAt(5);
  std::vector<PieceList> raw_;
};

TEST_F(InputTensorsTest, RawEntriesBelongToInputsInOrder) {
  const auto inputs = Read();
  ASSERT_THAT(inputs, IsOk());
  ASSERT_EQ(inputs->size(), 3u);
  EXPECT_EQ((*inputs)[1].name, "Q");
  EXPECT_EQ((*inputs)[1].dtype, Dtype::kFloat32);
  EXPECT_EQ((*inputs)[1].bytes, 64);
  EXPECT_EQ((*inputs)[1].segments[0].data(),
            reinterpret_cast<const std::byte*>(request_.raw_input_contents(1).data()));
}

TEST_F(InputTensorsTest, RefusesMoreThanAnyModelHas) {
  for (int i = 0; i < 100; ++i) AddInput("I" + std::to_string(i), "FP32", {1}, &request_);
  EXPECT_THAT(Read(), StatusIs(kInvalid, "inputs: 103 tensors; must be at most 64"));
}

TEST_F(InputTensorsTest, ErrorsShowTheBeginningOfLongNames) {
  const std::string name(100000, 'n');
  const auto expect_short = [&] {
    const absl::Status status = Read().status();
    EXPECT_FALSE(status.ok());
    EXPECT_LT(status.message().size(), 300u) << status.message().substr(0, 300);
  };
  request_.mutable_inputs(2)->set_datatype(name);
  expect_short();
  request_.mutable_inputs(1)->set_name(name);
  request_.mutable_inputs(2)->set_name(name);
  expect_short();
  request_ = RotateAt(5);
  SetRegion(name, 8, 4, request_.mutable_inputs(0)->mutable_parameters());
  expect_short();
  (*request_.mutable_inputs(0)->mutable_parameters())[name].set_int64_param(1);
  request_.mutable_inputs(0)->mutable_parameters()->erase("shared_memory_region");
  expect_short();
}

TEST_F(InputTensorsTest, InputsInSharedMemoryHaveNoRawEntry) {
  request_.clear_raw_input_contents();
  request_.mutable_inputs()->DeleteSubrange(1, 2);
  auto* const parameters = request_.mutable_inputs(0)->mutable_parameters();
  SetRegion("in", 8, 4, parameters);
  AddInput("Q", "FP32", {1}, &request_);
  request_.add_raw_input_contents("abcd");
  const auto inputs = Read();
  ASSERT_THAT(inputs, IsOk());
  EXPECT_FALSE((*inputs)[0].range.in_message());
  EXPECT_EQ((*inputs)[0].range.offset, 4);
  EXPECT_EQ((*inputs)[1].segments.size(), 1u);
}

TEST_F(InputTensorsTest, NumbersOfTheMessageBecomeBytes) {
  request_.clear_raw_input_contents();
  request_.mutable_inputs()->DeleteSubrange(1, 2);
  request_.mutable_inputs(0)->mutable_contents()->add_int64_contents(77);
  const auto inputs = Read();
  ASSERT_THAT(inputs, IsOk());
  EXPECT_EQ(*reinterpret_cast<const int64_t*>((*inputs)[0].segments[0].data()), 77);
}

TEST_F(InputTensorsTest, LengthsAreThoseOfTypeAndShape) {
  request_.mutable_raw_input_contents(1)->pop_back();
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[1]: raw_input_contents[1] has 63 "
                                                   "bytes; must be 64 for FP32 [1, 2, 8]")));
}

TEST_F(InputTensorsTest, RefusesMoreOrFewerRawEntriesThanInputs) {
  request_.add_raw_input_contents("");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("raw_input_contents: 4 entries; must be 3")));
  request_.mutable_raw_input_contents()->DeleteSubrange(2, 2);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("raw_input_contents: 2 entries; must be 3")));
}

TEST_F(InputTensorsTest, RefusesTypesThatNobodyTakes) {
  for (const char* datatype : {"", "BYTES", "BOOL", "UINT8", "fp32", "FLOAT32"}) {
    request_.mutable_inputs(1)->set_datatype(datatype);
    EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[1].datatype: '")));
  }
}

TEST_F(InputTensorsTest, RefusesShapesThatHaveNoSize) {
  request_.mutable_inputs(1)->set_shape(0, -1);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[1].shape")));
  for (int i = 0; i < 3; ++i) request_.mutable_inputs(1)->set_shape(i, int64_t{1} << 40);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[1]")));
}

TEST_F(InputTensorsTest, ANameIsGivenOnce) {
  request_.mutable_inputs(2)->set_name("Q");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[2].name: 'Q' twice")));
}

TEST_F(InputTensorsTest, TypedAndRawDoNotMix) {
  request_.mutable_inputs(0)->mutable_contents()->add_int64_contents(5);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("beside typed contents")));
}

TEST_F(InputTensorsTest, TypedAndSharedMemoryDoNotMix) {
  SetRegion("in", 8, 0, request_.mutable_inputs(0)->mutable_parameters());
  request_.mutable_inputs(0)->mutable_contents()->add_int64_contents(5);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("beside shared memory")));
}

TEST_F(InputTensorsTest, RangesAreAsLongAsTheTensor) {
  auto* const parameters = request_.mutable_inputs(0)->mutable_parameters();
  SetRegion("in", 12, 0, parameters);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("shared_memory_byte_size: 12; must be 8")));
  SetRegion("in", -8, 0, parameters);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[0].parameters")));
}

TEST_F(InputTensorsTest, ParametersOfATensorAreKnownAndOfTheirType) {
  auto* const parameters = request_.mutable_inputs(0)->mutable_parameters();
  (*parameters)["shared_memory_ofset"].set_int64_param(8);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[0].parameters.shared_memory_ofset")));
  parameters->clear();
  (*parameters)["shared_memory_byte_size"].set_int64_param(8);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("shared_memory_region: not set")));
  parameters->clear();
  (*parameters)["shared_memory_region"].set_string_param("in");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("shared_memory_byte_size: not set")));
  (*parameters)["shared_memory_byte_size"].set_string_param("8");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("must be an int64_param")));
}

// KServe's set_data_from_numpy adds the first, MLServer's codecs the second.
TEST_F(InputTensorsTest, NotesOfAClientsLibraryHaveNoEffect) {
  auto* const parameters = request_.mutable_inputs(0)->mutable_parameters();
  (*parameters)["binary_data_size"].set_int64_param(8);
  (*parameters)["content_type"].set_string_param("np");
  EXPECT_THAT(Read(), IsOk());
  (*parameters)["classification"].set_int64_param(3);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("inputs[0].parameters.classification")));
}

// The order of a protobuf map differs from message to message.
TEST_F(InputTensorsTest, OfManyWrongParametersTheErrorNamesTheFirst) {
  for (int i = 0; i < 50; ++i) {
    InferParameters parameters;
    for (const char* name : {"shared_memory_c", "shared_memory_a", "shared_memory_b"}) {
      parameters[name].set_int64_param(1);
    }
    EXPECT_THAT(ReadRegionRange(parameters, "p"),
                StatusIs(kInvalid, HasSubstr("p.shared_memory_a: ")));
    parameters.clear();
    parameters["shared_memory_offset"].set_string_param("1");
    parameters["shared_memory_byte_size"].set_string_param("1");
    parameters["shared_memory_region"].set_int64_param(1);
    EXPECT_THAT(ReadRegionRange(parameters, "p"),
                StatusIs(kInvalid, HasSubstr("p.shared_memory_region: ")));
  }
}

}  // namespace
}  // namespace phasor::oip
