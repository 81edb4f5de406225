// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/diagnosis.h"

#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/rotated_caches.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::CacheSpec;
using ::phasor::testing::RotatedLayer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DiagnosisTest : public ::testing::Test {
 protected:
  // A layer that was stored with `base` and is said to have `said`.
  CheckedLayer Layer(int64_t number, double base, double said) {
    LayerCase layer = RotatedLayer(dir_, number, base, CacheSpec(said));
    const auto outcome = CompareLayer(client_, layer, std::numeric_limits<int64_t>::max());
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return {std::move(layer), *outcome};
  }

  const testing::TempDir dir_;
  const Client client_ = *Client::Connect("inproc:");
};

TEST_F(DiagnosisTest, LayersWithOneSpecificationAreTakenTogether) {
  const std::vector<CheckedLayer> layers = {Layer(0, 1e4, 5e5), Layer(1, 1e6, 3e4),
                                            Layer(2, 1e4, 5e5)};
  const auto found = Diagnose(client_, layers, {});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 2u);
  EXPECT_THAT((*found)[0].layers, ElementsAre(0, 2));
  EXPECT_THAT((*found)[0].kinds, ElementsAre("rope_theta"));
  EXPECT_EQ((*found)[0].says, "Layers 0, 2 fit with rope_theta 10000 in place of 500000.");
  EXPECT_EQ((*found)[1].says, "Layer 1 fits with rope_theta 1000000 in place of 30000.");
}

TEST_F(DiagnosisTest, AChangeThatFitsSomeLayersOnlyIsNoDiagnosis) {
  const std::vector<CheckedLayer> layers = {Layer(0, 1e4, 5e5), Layer(1, 1e6, 5e5)};
  const auto found = Diagnose(client_, layers, {});
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_FALSE((*found)[0].fits);
  EXPECT_THAT((*found)[0].says, HasSubstr("no neighbour of the specification fits"));
}

TEST_F(DiagnosisTest, RightLayersLeaveNoDoubtAtAGreatDistance) {
  const std::vector<CheckedLayer> layers = {Layer(0, 5e5, 5e5)};
  const auto doubts = FindDoubts(client_, layers, {});
  ASSERT_TRUE(doubts.ok()) << doubts.status();
  EXPECT_THAT(doubts->wrong, IsEmpty());
  // Both caches have their tokens in equal slots, so heads may be slots.
  EXPECT_THAT(doubts->also_fit, ElementsAre(HasSubstr("heads and slots are exchanged")));
}

TEST_F(DiagnosisTest, ANeighbourThatFitsMuchBetterIsAFault) {
  CheckedLayer checked = Layer(0, 1e4, 5e5);
  checked.layer.tolerance = 3;  // as wide as that of a coarse code
  const auto doubts = FindDoubts(client_, {&checked, 1}, {});
  ASSERT_TRUE(doubts.ok()) << doubts.status();
  ASSERT_FALSE(doubts->wrong.empty());
  EXPECT_THAT(doubts->wrong[0].says, HasSubstr("much better with rope_theta 10000"));
}

TEST(LayersTextTest, RunsAreShort) {
  EXPECT_EQ(LayersText({3}), "layer 3");
  EXPECT_EQ(LayersText({0, 1}), "layers 0, 1");
  EXPECT_EQ(LayersText({0, 1, 2, 3, 7, 9, 10, 11}), "layers 0-3, 7, 9-11");
}

}  // namespace
}  // namespace phasor::cli
