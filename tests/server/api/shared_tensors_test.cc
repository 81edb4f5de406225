// SPDX-License-Identifier: Apache-2.0
// Tests that the tensors of an item that are named get their memory, and that a destination must
// have the shape of its result.
#include "server/api/shared_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/convert.h"
#include "server/memory/lease_store.h"
#include "tests/support/memfd.h"
#include "tests/support/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class SharedTensorsTest : public ::testing::Test {
 protected:
  // A leased tensor of floats.
  memory::SharedTensor At(int64_t offset, std::vector<int64_t> shape) const {
    memory::SharedTensor tensor;
    tensor.name = token_;
    tensor.offset = offset;
    tensor.shape = std::move(shape);
    tensor.path = "item.destination";
    return tensor;
  }
  static engine::Item Rotation() {
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    const auto request = RopeRequestFromWire(testing::RopeOf(2), "item");
    return engine::Item(*PrepareRope(*request, plans, "item"));
  }

  const testing::Memfd memfd_{std::string(1024, 'm')};
  memory::LeaseStore leases_{memory::OwnerLimits{}};
  const std::string token_ = *leases_.Add(memfd_.fd(), "me");
  const memory::CallerMemory memory_{{.leases = &leases_}, {}};
  memory::Binding binding_{memory_};
};

TEST_F(SharedTensorsTest, InputsAreFoundByTheirRole) {
  SharedTensors tensors;
  EXPECT_TRUE(tensors.empty());
  tensors.inputs.push_back({Role::kTensor, 1, At(64, {2, 1, 8})});
  EXPECT_FALSE(tensors.empty());
  EXPECT_EQ(tensors.Find(Role::kTensor, 1)->offset, 64);
  EXPECT_EQ(tensors.Find(Role::kTensor, 0), nullptr);
  EXPECT_EQ(tensors.Find(Role::kValues, 1), nullptr);
  engine::Item item = Rotation();
  ASSERT_THAT(Bind(tensors, &binding_, &item), IsOk());
  EXPECT_TRUE(item.Find(Role::kTensor, 0)->bytes.empty());
  ASSERT_EQ(item.Find(Role::kTensor, 1)->bytes.size(), 1u);
  EXPECT_EQ(item.Find(Role::kTensor, 1)->bytes[0].size(), 64u);
}

TEST_F(SharedTensorsTest, ADestinationHasTheShapeOfItsResult) {
  engine::Item item = Rotation();
  SharedTensors tensors;
  tensors.outputs.push_back({.slot = 0, .tensor = At(128, {2, 2, 8})});
  ASSERT_THAT(Bind(tensors, &binding_, &item), IsOk());
  EXPECT_EQ(item.outputs[0].place.offset_bytes, 128);
  for (const std::vector<int64_t>& wrong :
       {std::vector<int64_t>{2, 2}, {2, 8, 2}, {2, 2, 8, 1}, {}}) {
    tensors.outputs[0].tensor.shape = wrong;
    EXPECT_THAT(Bind(tensors, &binding_, &item),
                StatusIs(kInvalid, HasSubstr("item.destination: not like the result; must have its "
                                             "dtype and shape, DTYPE_FLOAT32 and 3 dimensions")));
  }
}

TEST_F(SharedTensorsTest, ErrorsOfTheMemoryAreThoseOfTheItem) {
  engine::Item item = Rotation();
  SharedTensors tensors;
  tensors.outputs.push_back({.slot = 0, .tensor = At(1000, {2, 2, 8})});
  EXPECT_THAT(Bind(tensors, &binding_, &item), StatusIs(kInvalid, HasSubstr("1000")));
}

}  // namespace
}  // namespace phasor::rpc
