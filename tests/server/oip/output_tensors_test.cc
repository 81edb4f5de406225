// SPDX-License-Identifier: Apache-2.0
// Tests which outputs a request gets, in which order, and where.
#include "server/oip/output_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/oip/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;

class OutputTensorsTest : public ::testing::Test {
 protected:
  OutputTensorsTest() {
    results_[0].name = "Q_OUT";
    results_[0].bytes = 8;
    results_[1].name = "K_OUT";
    results_[1].bytes = 4;
    results_[1].index = 1;
  }

  absl::StatusOr<std::vector<OutputTensor>> Read() {
    return ReadOutputs(request_, PresetModel("llama-3").outputs, results_);
  }

  inference::ModelInferRequest request_;
  std::vector<OutputTensor> results_{2};
};

TEST_F(OutputTensorsTest, AllOfThemUnlessSomeAreNamed) {
  ASSERT_THAT(Read(), IsOk());
  EXPECT_EQ(Read()->size(), 2u);
  request_.add_outputs()->set_name("K_OUT");
  ASSERT_THAT(Read(), IsOk());
  EXPECT_EQ(Read()->size(), 1u);
  EXPECT_EQ(Read()->front().index, 1u);
}

TEST_F(OutputTensorsTest, WhatAnOptionalInputWouldGiveIsLeftOut) {
  results_.pop_back();  // no K
  request_.add_outputs()->set_name("K_OUT");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("outputs[0].name: 'K_OUT'")));
  request_.add_outputs()->set_name("Q_OUT");
  ASSERT_THAT(Read(), IsOk());
  ASSERT_EQ(Read()->size(), 1u);
  EXPECT_EQ(Read()->front().name, "Q_OUT");
  EXPECT_EQ(Read()->front().path, "outputs[1]");
  request_.add_outputs()->set_name("V_OUT");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("outputs[2].name: 'V_OUT'")));
}

TEST_F(OutputTensorsTest, TheOrderIsThatOfTheRequest) {
  request_.add_outputs()->set_name("K_OUT");
  request_.add_outputs()->set_name("Q_OUT");
  const auto outputs = Read();
  ASSERT_THAT(outputs, IsOk());
  EXPECT_EQ((*outputs)[0].name, "K_OUT");
  EXPECT_EQ((*outputs)[1].name, "Q_OUT");
}

TEST_F(OutputTensorsTest, RefusesNamesThatAreUnknownOrTwice) {
  request_.add_outputs()->set_name("V_OUT");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("outputs[0].name: 'V_OUT' is not an output of "
                                                   "this request; must be one of Q_OUT, K_OUT")));
  request_.mutable_outputs(0)->set_name("Q_OUT");
  request_.add_outputs()->set_name("Q_OUT");
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("outputs[1].name: 'Q_OUT' twice")));
}

TEST_F(OutputTensorsTest, RefusesMoreThanAnyModelHas) {
  for (int i = 0; i < 65; ++i) request_.add_outputs()->set_name("O" + std::to_string(i));
  EXPECT_THAT(Read(), StatusIs(kInvalid, "outputs: 65 tensors; must be at most 64"));
}

TEST_F(OutputTensorsTest, ErrorsShowTheBeginningOfLongNames) {
  request_.add_outputs()->set_name(std::string(100000, 'n'));
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("nnn...' is not an output of this request")));
}

TEST_F(OutputTensorsTest, TheSizeOfARangeIsACapacity) {
  auto* const output = request_.add_outputs();
  output->set_name("Q_OUT");
  SetRegion("out", 16, 0, output->mutable_parameters());
  EXPECT_THAT(Read(), IsOk());
  SetRegion("out", 7, 0, output->mutable_parameters());
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("must be at least 8 bytes")));
}

TEST_F(OutputTensorsTest, ClassificationIsRefused) {
  auto* const output = request_.add_outputs();
  output->set_name("Q_OUT");
  (*output->mutable_parameters())["classification"].set_int64_param(3);
  EXPECT_THAT(Read(), StatusIs(kInvalid, HasSubstr("outputs[0].parameters.classification")));
}

}  // namespace
}  // namespace phasor::oip
