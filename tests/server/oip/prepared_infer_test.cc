// SPDX-License-Identifier: Apache-2.0
// Tests that requests of the protocol become the items that phasor.v1 would make, or errors that
// name fields of the request.
#include "server/oip/prepared_infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/server/oip/requests.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ::phasor::testing::kInvalid;

class PreparedInferTest : public ::testing::Test {
 protected:
  absl::StatusOr<PreparedInfer> Prepare(const inference::ModelInferRequest& request) {
    raw_ = RawOf(request);
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    return PrepareInfer(request, raw_, {&PresetSet(), plans, limit_, nullptr, memory_});
  }

  int64_t limit_ = 1 << 20;
  static memory::RegionStoreOptions Enabled() {
    memory::RegionStoreOptions options;
    options.enabled = true;
    return options;
  }
  memory::RegionStore store_{Enabled()};
  const memory::CallerMemory memory_{{.regions = &store_}, {"me"}};
  std::vector<PieceList> raw_;
};

TEST_F(PreparedInferTest, AnEncodingHasTheShapeOfItsPositions) {
  inference::ModelInferRequest request = EncodeAt({1, 2, 3, 4, 5, 6});
  auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->outputs[0].shape, ElementsAre(6, 8));
  EXPECT_EQ(prepared->outputs[0].bytes, 6 * 8 * 4);
  EXPECT_EQ(prepared->id, "r1");

  request.mutable_inputs(0)->set_shape(0, 2);
  request.mutable_inputs(0)->add_shape(3);
  prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->outputs[0].shape, ElementsAre(2, 3, 8));

  // Several axes: the last dimension of the positions is no dimension of the output.
  (*request.mutable_parameters())["axes"].set_int64_param(3);
  (*request.mutable_parameters())["dim"].set_int64_param(12);
  request.set_model_name("grid-2d-concat");
  prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->outputs[0].shape, ElementsAre(2, 12));
}

TEST_F(PreparedInferTest, WhatIsAddedHasTheShapeAndTypeOfTheEncoding) {
  inference::ModelInferRequest request = EncodeAt({1, 2});
  auto* const input = AddInput("EMBEDDINGS", "BF16", {2, 8}, &request);
  request.add_raw_input_contents(std::string(32, '\0'));
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->outputs[0].dtype, Dtype::kBFloat16);
  EXPECT_EQ(prepared->item.Find(Role::kAddTo)->bytes.size(), 1u);

  input->clear_shape();
  input->add_shape(1);
  input->add_shape(2);
  input->add_shape(8);
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("inputs[1].shape")));
  input->clear_shape();
  input->add_shape(4);
  input->add_shape(4);
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("inputs[1].shape")));
}

TEST_F(PreparedInferTest, ARotationGivesWhatItTakes) {
  inference::ModelInferRequest request = RotateAt(3);
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_EQ(prepared->outputs.size(), 2u);
  EXPECT_EQ(prepared->outputs[0].name, "Q_OUT");
  EXPECT_THAT(prepared->outputs[1].shape, ElementsAre(1, 1, 8));
  EXPECT_EQ(prepared->server_bytes, 96);

  request.mutable_inputs()->RemoveLast();
  request.mutable_raw_input_contents()->RemoveLast();
  ASSERT_THAT(Prepare(request), IsOk());
  EXPECT_EQ(Prepare(request)->outputs.size(), 1u);
  request.add_outputs()->set_name("K_OUT");
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("outputs[0].name: 'K_OUT'")));
}

TEST_F(PreparedInferTest, ABiasHasHeadsQueriesAndKeys) {
  inference::ModelInferRequest request;
  request.set_model_name("alibi");
  AddInput("QUERY_POSITIONS", "INT32", {2}, &request);
  AddInput("KEY_POSITIONS", "INT32", {3}, &request);
  request.add_raw_input_contents(BytesOfValues<int32_t>({4, 5}));
  request.add_raw_input_contents(BytesOfValues<int32_t>({3, 4, 5}));
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("parameters.heads")));
  (*request.mutable_parameters())["heads"].set_int64_param(8);
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->outputs[0].shape, ElementsAre(8, 2, 3));
}

TEST_F(PreparedInferTest, ErrorsNameTheFieldsOfTheRequest) {
  inference::ModelInferRequest request = RotateAt(3);
  request.mutable_inputs(2)->set_shape(0, 2);
  request.mutable_inputs(2)->set_shape(2, 4);
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("inputs[2].shape[0]: 2 tokens")));

  request = EncodeAt({1});
  request.clear_parameters();
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("parameters.dim: ")));

  request = EncodeAt({1});
  request.mutable_inputs(0)->set_datatype("FP16");
  request.set_raw_input_contents(0, "ab");
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("inputs[0].datatype: ")));

  request = RotateAt(3);
  (*request.mutable_parameters())["direction"].set_string_param("DELTA");
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("inputs.FROM_POSITIONS: ")));
}

TEST_F(PreparedInferTest, RefusesInputsThatAreMissingOrUnknown) {
  inference::ModelInferRequest request = RotateAt(3);
  request.mutable_inputs(1)->set_name("V");
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("inputs[1].name: 'V' is not an "
                                                              "input of 'rope-half-split'")));
  request = RotateAt(3);
  request.clear_inputs();
  request.clear_raw_input_contents();
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("inputs: POSITIONS is missing")));
}

TEST_F(PreparedInferTest, AnAnswerLargerThanAMessageIsRefused) {
  limit_ = 700;
  EXPECT_THAT(Prepare(EncodeAt({1})), IsOk());
  EXPECT_THAT(Prepare(EncodeAt({1, 2, 3, 4, 5, 6, 7})),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 700 bytes")));
  inference::ModelInferRequest long_id = EncodeAt({1});
  long_id.set_id(std::string(200, 'i'));
  EXPECT_THAT(Prepare(long_id),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 700 bytes")));
}

TEST_F(PreparedInferTest, TensorsAreInsideTheirRegion) {
  const testing::SharedMemory region(std::string(128, 'm'));
  ASSERT_THAT(store_.Register("mem", {region.key(), 0, 128}, {"me"}), IsOk());
  inference::ModelInferRequest request = RotateAt(3);
  request.mutable_raw_input_contents()->DeleteSubrange(1, 1);
  auto* const q = request.mutable_inputs(1)->mutable_parameters();
  SetRegion("mem", 64, 0, q);
  for (const char* const name : {"Q_OUT", "K_OUT"}) request.add_outputs()->set_name(name);
  auto* const q_out = request.mutable_outputs(0)->mutable_parameters();
  SetRegion("mem", 100, 28, q_out);
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("outputs[0]: overlaps inputs[1]")));
  SetRegion("mem", 64, 64, q_out);
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->server_bytes, 32) << "k in the answer";
  EXPECT_EQ(prepared->bound.shared_bytes, 128);
  SetRegion("mem", 65, 64, q_out);
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("outputs[0].parameters: ")));
  for (const int64_t offset : {int64_t{65}, std::numeric_limits<int64_t>::max(), int64_t{-1}}) {
    SetRegion("mem", 64, offset, q);
    EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("inputs[1].parameters: ")));
  }
  SetRegion("other", 64, 0, q);
  EXPECT_THAT(Prepare(request),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'other' is not registered")));
}

TEST_F(PreparedInferTest, ModelsHaveOneVersion) {
  EXPECT_THAT(FindVersion(PresetSet(), "transformer", ""), IsOk());
  EXPECT_THAT(FindVersion(PresetSet(), "transformer", "1"), IsOk());
  EXPECT_THAT(FindVersion(PresetSet(), "transformer", "2"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("version 2 is not found")));
  EXPECT_THAT(FindVersion(PresetSet(), "transformer", "one"),
              StatusIs(kInvalid, StartsWith("version: 'one'")));
  EXPECT_THAT(FindVersion(PresetSet(), "bert", ""),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("Request for unknown model: 'bert' is not found; Repository")));
  EXPECT_THAT(FindVersion(PresetSet(), "transformr", ""),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("'transformr' is not found; did you mean \"transformer\"?")));
}

// What an error says to do must be possible in this protocol.
TEST_F(PreparedInferTest, ErrorsUseTheNamesOfTheProtocol) {
  const auto error_of = [&](const inference::ModelInferRequest& request) {
    return std::string(Prepare(request).status().message());
  };
  inference::ModelInferRequest type = EncodeAt({1});
  (*type.mutable_parameters())["output_dtype"].set_string_param("INT32");
  EXPECT_EQ(error_of(type), "parameters.output_dtype: INT32; must be FP64, FP32, FP16 or BF16");

  inference::ModelInferRequest embeddings = EncodeAt({1});
  AddInput("EMBEDDINGS", "INT64", {1, 8}, &embeddings);
  embeddings.add_raw_input_contents(std::string(64, '\0'));
  EXPECT_THAT(error_of(embeddings), StartsWith("inputs[1].datatype: INT64; must be FP64, FP32"));

  inference::ModelInferRequest scale = EncodeAt({1});
  (*scale.mutable_parameters())["embedding_scale"].set_double_param(2);
  EXPECT_EQ(error_of(scale), "parameters.embedding_scale: set without EMBEDDINGS; must be 1");

  inference::ModelInferRequest delta = RotateAt(1);
  (*delta.mutable_parameters())["direction"].set_string_param("DELTA");
  EXPECT_THAT(error_of(delta), StartsWith("inputs.FROM_POSITIONS: not set; must be given"));
}

TEST_F(PreparedInferTest, PathsAreRenamedAtTheirEndsOnly) {
  const PathNames names = {{"item.tensors[1]", "inputs[2]"}, {"item", "parameters"}};
  const auto renamed = [&](const char* message) {
    return std::string(RenamePath(absl::NotFoundError(message), names).message());
  };
  EXPECT_EQ(renamed("item.tensors[1].shape: x"), "inputs[2].shape: x");
  EXPECT_EQ(renamed("item.tensors[10].shape: x"), "parameters.tensors[10].shape: x");
  EXPECT_EQ(renamed("items: x"), "items: x");
  EXPECT_EQ(renamed("server: item"), "server: item");
}

}  // namespace
}  // namespace phasor::oip
