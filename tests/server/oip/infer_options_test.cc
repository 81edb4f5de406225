// SPDX-License-Identifier: Apache-2.0
// Tests parameters: fields of specs, options of calls, what clients add, and refusal of all others.
#include "server/oip/infer_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/server/oip/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;

class InferOptionsTest : public ::testing::Test {
 protected:
  absl::StatusOr<InferOptions> Read(const std::string& model) {
    return ReadOptions(PresetModel(model), parameters_);
  }

  InferParameters parameters_;
};

TEST_F(InferOptionsTest, FieldsOfTheSpecOverrideThePreset) {
  parameters_["dim"].set_int64_param(64);
  parameters_["rope_theta"].set_double_param(500.5);
  parameters_["order"].set_string_param("COS_SIN");
  const auto options = Read("transformer");
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->spec.preset, "transformer");
  EXPECT_EQ(options->spec.dim, 64);
  EXPECT_EQ(options->spec.rope_theta, 500.5);
  EXPECT_EQ(options->spec.order, TrigOrder::kCosSin);
}

TEST_F(InferOptionsTest, FieldsOfTheSpecOverrideAnEncoder) {
  Model encoder;
  encoder.spec.preset = "transformer";
  encoder.spec.dim = 64;
  encoder.spec.rope_theta = 500;
  parameters_["dim"].set_int64_param(32);
  const auto options = ReadOptions(encoder, parameters_);
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->spec.preset, "transformer");
  EXPECT_EQ(options->spec.dim, 32);
  EXPECT_EQ(options->spec.rope_theta, 500);
  parameters_["encoder"].set_string_param("other");
  EXPECT_THAT(ReadOptions(encoder, parameters_),
              StatusIs(kInvalid, HasSubstr("parameters.encoder")));
}

TEST_F(InferOptionsTest, ListsAndObjectsTravelAsJson) {
  parameters_["axes_dim"].set_string_param("[16, 24, 24]");
  parameters_["rope_scaling"].set_string_param(R"({"linear": {"factor": 4}})");
  const auto options = Read("rope-3d");
  ASSERT_THAT(options, IsOk());
  EXPECT_THAT(options->spec.axes_dim, ElementsAre(16, 24, 24));
  EXPECT_EQ(std::get<LinearScaling>(options->spec.rope_scaling).factor, 4.0);
}

TEST_F(InferOptionsTest, HowToRunDependsOnTheKindOfModel) {
  parameters_["direction"].set_string_param("inverse");
  parameters_["layout"].set_string_param("HEADS_TOKENS");
  const auto rotary = Read("llama-3");
  ASSERT_THAT(rotary, IsOk());
  EXPECT_EQ(rotary->direction, Direction::kInverse);
  EXPECT_EQ(rotary->layout, RopeLayout::kHeadsTokens);
  EXPECT_THAT(Read("transformer"), StatusIs(kInvalid, HasSubstr("parameters.direction")));

  parameters_.clear();
  parameters_["output_dtype"].set_string_param("BF16");
  parameters_["embedding_scale"].set_double_param(2);
  const auto encoding = Read("transformer");
  ASSERT_THAT(encoding, IsOk());
  EXPECT_EQ(encoding->output_dtype, Dtype::kBFloat16);
  EXPECT_EQ(encoding->embedding_scale, 2);
  EXPECT_THAT(Read("llama-3"), StatusIs(kInvalid, HasSubstr("parameters.embedding_scale")));
}

TEST_F(InferOptionsTest, BiasesHaveFieldsOfTheirOwn) {
  parameters_["heads"].set_int64_param(8);
  parameters_["num_buckets"].set_int64_param(16);
  parameters_["bidirectional"].set_bool_param(false);
  const auto options = Read("t5");
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->heads, 8);
  EXPECT_EQ(options->bias.num_buckets, 16);
  EXPECT_EQ(options->bias.bidirectional, false);
  parameters_["dim"].set_int64_param(8);
  EXPECT_THAT(Read("t5"), StatusIs(kInvalid, HasSubstr("parameters.dim")));
}

TEST_F(InferOptionsTest, AcceptsWhatClientsSendByThemselves) {
  parameters_["triton_enable_empty_final_response"].set_bool_param(true);
  parameters_["priority"].set_uint64_param(3);
  parameters_["timeout"].set_int64_param(1500);
  const auto options = Read("llama-3");
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->timeout, absl::Microseconds(1500));
  parameters_["priority"].set_int64_param(3);
  parameters_["timeout"].set_int64_param(0);
  ASSERT_THAT(Read("llama-3"), IsOk());
  EXPECT_EQ(Read("llama-3")->timeout, absl::InfiniteDuration());
}

// Whatever their type: nobody reads them.
TEST_F(InferOptionsTest, ClientsOfOtherServersAddParametersWithoutEffect) {
  parameters_["binary_data_output"].set_bool_param(true);
  parameters_["binary_data_size"].set_int64_param(96);
  parameters_["content_type"].set_string_param("np");
  parameters_["headers"].set_string_param("{not JSON");
  for (const char* model : {"transformer", "llama-3", "t5"}) {
    EXPECT_THAT(Read(model), IsOk()) << model;
  }
}

TEST_F(InferOptionsTest, RefusesWhatItDoesNotKnow) {
  for (const char* name : {"dimm", "triton_other", "preset", "config_json", "sequence_id"}) {
    parameters_.clear();
    parameters_[name].set_int64_param(1);
    EXPECT_THAT(Read("transformer"),
                StatusIs(kInvalid, HasSubstr("parameters." + std::string(name))));
  }
}

TEST_F(InferOptionsTest, RefusesMoreParametersThanThereCanBe) {
  for (size_t i = 0; i < kMaxParameters; ++i) {
    parameters_["p" + std::to_string(i)].set_int64_param(1);
  }
  EXPECT_THAT(Read("transformer"), StatusIs(kInvalid, HasSubstr("parameters.p0: no such field")));
  for (int i = 0; i < 60000; ++i) parameters_["p" + std::to_string(i)].set_int64_param(1);
  for (const char* model : {"transformer", "t5"}) {
    EXPECT_THAT(Read(model), StatusIs(kInvalid, "parameters: 60000 of them; must be at most 256"));
  }
}

TEST_F(InferOptionsTest, ErrorsShowTheBeginningOfWhatIsWrong) {
  const std::string text(100000, 't');
  for (const auto& [model, name, value] :
       {std::tuple("transformer", text, std::string("1")),
        std::tuple("transformer", "triton_" + text, text),
        std::tuple("transformer", text, std::string("[")), std::tuple("t5", text, text),
        std::tuple("t5", std::string("output_dtype"), text),
        std::tuple("llama-3", std::string("direction"), text),
        std::tuple("llama-3", std::string("layout"), text)}) {
    parameters_.clear();
    parameters_[name].set_string_param(value);
    const absl::Status status = Read(model).status();
    EXPECT_EQ(status.code(), kInvalid);
    EXPECT_LT(status.message().size(), 300u) << status.message().substr(0, 300);
  }
}

TEST_F(InferOptionsTest, RefusesValuesOfAnotherType) {
  parameters_["dim"].set_string_param("wide");
  EXPECT_THAT(Read("transformer"), StatusIs(kInvalid, HasSubstr("parameters.dim")));
  parameters_.clear();
  parameters_["dim"];  // nothing at all
  EXPECT_THAT(Read("transformer"), StatusIs(kInvalid, HasSubstr("no value")));
  parameters_.clear();
  parameters_["axes_dim"].set_string_param("[1, 2");
  EXPECT_THAT(Read("transformer"), StatusIs(kInvalid, HasSubstr("parameters.axes_dim")));
  parameters_.clear();
  parameters_["timeout"].set_int64_param(-1);
  EXPECT_THAT(Read("transformer"), StatusIs(kInvalid, HasSubstr("parameters.timeout")));
}

}  // namespace
}  // namespace phasor::oip
