// SPDX-License-Identifier: Apache-2.0
// Tests that the generated classes parse responses, and that each output has one raw entry.
#include "server/oip/infer_response.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "tests/support/shared_memory.h"

namespace phasor::oip {
namespace {

template <typename Message>
Message Parsed(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

class InferResponseTest : public ::testing::Test {
 protected:
  InferResponseTest() {
    prepared_.model = PresetSet().Find("llama-3");
    prepared_.id = "r1";
    prepared_.outputs.resize(2);
    prepared_.outputs[0].name = "K_OUT";
    prepared_.outputs[0].shape = {1, 2};
    prepared_.outputs[0].index = 1;
    prepared_.outputs[1].name = "Q_OUT";
    prepared_.outputs[1].dtype = Dtype::kBFloat16;
    result_.buffer = pool_.Get(1 << 16);
    std::memset(result_.buffer->data(), 'q', 10000);
    std::memset(result_.buffer->data() + 10048, 'k', 8);
    result_.items.resize(1);
    result_.items[0].outputs = {{0, 10000}, {10048, 8}};
  }

  engine::BufferPool pool_{0};
  engine::Result result_;
  PreparedInfer prepared_;
};

TEST_F(InferResponseTest, RawEntriesStandInTheOrderOfTheOutputs) {
  const auto response =
      Parsed<inference::ModelInferResponse>(MakeInferResponse(prepared_, result_, false));
  EXPECT_EQ(response.model_name(), "llama-3");
  EXPECT_EQ(response.model_version(), "1");
  EXPECT_EQ(response.id(), "r1");
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "K_OUT");
  EXPECT_EQ(response.outputs(0).shape(1), 2);
  EXPECT_EQ(response.outputs(1).datatype(), "BF16");
  EXPECT_FALSE(response.outputs(0).has_contents());
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.raw_output_contents(0), std::string(8, 'k'));
  EXPECT_EQ(response.raw_output_contents(1), std::string(10000, 'q'));
}

TEST_F(InferResponseTest, AnOutputInSharedMemoryHasAnEmptyEntry) {
  prepared_.outputs[1].range.name = "out";
  prepared_.outputs[1].bytes = 10000;
  const auto response =
      Parsed<inference::ModelInferResponse>(MakeInferResponse(prepared_, result_, false));
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.raw_output_contents(1), "");
  const auto& parameters = response.outputs(1).parameters();
  EXPECT_EQ(parameters.at("shared_memory_region").string_param(), "out");
  EXPECT_EQ(parameters.at("shared_memory_byte_size").int64_param(), 10000);
}

TEST_F(InferResponseTest, AStreamWrapsTheSameAnswerAndMarksItFinal) {
  const auto alone =
      Parsed<inference::ModelInferResponse>(MakeInferResponse(prepared_, result_, false));
  auto streamed =
      Parsed<inference::ModelStreamInferResponse>(MakeInferResponse(prepared_, result_, true));
  EXPECT_EQ(streamed.error_message(), "");
  auto* const parameters = streamed.mutable_infer_response()->mutable_parameters();
  EXPECT_TRUE(parameters->at("triton_final_response").bool_param());
  parameters->clear();
  EXPECT_EQ(streamed.infer_response().SerializeAsString(), alone.SerializeAsString());
}

TEST_F(InferResponseTest, AStreamErrorNamesTheRequest) {
  const auto response = Parsed<inference::ModelStreamInferResponse>(
      MakeStreamError(absl::NotFoundError("model_name: none"), "r7"));
  EXPECT_EQ(response.error_message(), "model_name: none");
  EXPECT_EQ(response.infer_response().id(), "r7");
}

}  // namespace
}  // namespace phasor::oip
