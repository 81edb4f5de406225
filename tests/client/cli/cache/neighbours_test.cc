// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/neighbours.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/rotated_caches.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::CacheSpec;
using ::phasor::testing::RotatedLayer;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Said(const std::vector<Change>& changes, const std::string& kind) {
  std::vector<std::string> said;
  for (const Change& change : changes) {
    if (change.kind == kind) said.push_back(change.says);
  }
  return said;
}

class NeighboursTest : public ::testing::Test {
 protected:
  const testing::TempDir dir_;
};

TEST_F(NeighboursTest, AppliedChangesAreAllDifferent) {
  Spec spec = CacheSpec(5e5);
  spec.rotary_dim = 16;
  spec.rope_scaling = YarnScaling{.factor = 4, .original_max_position_embeddings = 4096};
  const LayerCase layer = RotatedLayer(dir_, 0, 5e5, spec);
  const ModelSpecs model = {{0, *ResolveSpec(spec)}, {5, *ResolveSpec(CacheSpec(3e4))}};
  std::set<std::string> kinds, outcomes;
  size_t applied = 0;
  for (const Change& change : NeighboursOf(layer, 1.1386, model)) {
    LayerCase changed = layer;
    if (!change.apply(&changed)) continue;
    ++applied;
    kinds.insert(change.kind);
    outcomes.insert(absl::StrCat(
        changed.spec.has_value() ? Fingerprint(*ResolveSpec(*changed.spec)) : "none", " ",
        changed.amplitude, " ", changed.distance, " ", changed.reversed, " ", changed.row_shift,
        " ", changed.from.layout.name, " ", changed.from.layout.hadamard));
  }
  EXPECT_EQ(outcomes.size(), applied);
  EXPECT_THAT(kinds, ::testing::IsSupersetOf({"rope_theta", "scaling", "pairing", "window",
                                              "amplitude", "spec", "rotation", "layout", "hadamard",
                                              "distance", "rows"}));
}

TEST_F(NeighboursTest, BasesAreTheUsualOnesAndThoseOfOtherLayers) {
  const ModelSpecs model = {{0, *ResolveSpec(CacheSpec(3e4))}};
  const auto bases =
      Said(NeighboursOf(RotatedLayer(dir_, 0, 1e4, CacheSpec(1e4)), 1, model), "rope_theta");
  EXPECT_THAT(bases, ::testing::UnorderedElementsAre("rope_theta 30000 in place of 10000",
                                                     "rope_theta 500000 in place of 10000",
                                                     "rope_theta 1000000 in place of 10000"));
}

TEST_F(NeighboursTest, LongRopeHasTwoListsOfFactors) {
  Spec spec = CacheSpec(1e4);
  spec.rope_scaling = LongRopeScaling{.short_factor = std::vector<double>(16, 1.0),
                                      .long_factor = std::vector<double>(16, 2.0),
                                      .original_max_position_embeddings = 4096,
                                      .factor = 4};
  spec.sequence_length = 100;
  const LayerCase layer = RotatedLayer(dir_, 0, 1e4, spec);
  std::vector<std::string> changed;
  for (const Change& change : NeighboursOf(layer, 1, {})) {
    LayerCase copy = layer;
    if (change.kind == "scaling" && change.apply(&copy)) changed.push_back(change.says);
  }
  EXPECT_THAT(changed, Contains(HasSubstr("long_factor")));
}

// DeepSeek in transformers: pairs are read as neighbours and stored as halves. A cache whose pairs
// stay neighbours, as in vLLM, turns otherwise; one that reads halves turns alike.
TEST_F(NeighboursTest, ThePairingIsThatOfTheStoredLanes) {
  Spec spec = CacheSpec(1e4);
  spec.pairing = Pairing::kInterleaved;
  spec.pairing_out = Pairing::kHalfSplit;
  const LayerCase layer = RotatedLayer(dir_, 0, 1e4, spec);
  int tried = 0;
  for (const Change& change : NeighboursOf(layer, 1, {})) {
    LayerCase copy = layer;
    if (change.kind != "pairing" || !change.apply(&copy)) continue;
    ++tried;
    EXPECT_EQ(ResolveSpec(*copy.spec)->pairing_out, Pairing::kInterleaved) << change.says;
  }
  EXPECT_EQ(tried, 1);
}

TEST_F(NeighboursTest, LayersWithoutRotationTurnAsOtherLayersOrLieElsewhere) {
  LayerCase layer = RotatedLayer(dir_, 0, 1e4, CacheSpec(1e4));
  layer.spec.reset();
  const std::vector<Change> changes = NeighboursOf(layer, 1, {{3, *ResolveSpec(CacheSpec(1e4))}});
  EXPECT_THAT(Said(changes, "spec"), Contains("the rotation of layer 3"));
  EXPECT_TRUE(Said(changes, "rope_theta").empty());
  EXPECT_TRUE(Said(changes, "rotation").empty());
  EXPECT_FALSE(Said(changes, "layout").empty());
}

TEST_F(NeighboursTest, LayoutsWithDistancesByHandStay) {
  LayerCase layer = RotatedLayer(dir_, 0, 1e4, CacheSpec(1e4));
  layer.from.layout.page_bytes = layer.to.layout.page_bytes = 4096;
  int layouts = 0;
  for (const Change& change : NeighboursOf(layer, 1, {})) {
    LayerCase copy = layer;
    if (change.kind != "layout") continue;
    ++layouts;
    EXPECT_FALSE(change.apply(&copy)) << change.says;
  }
  EXPECT_GT(layouts, 0);
}

TEST(CombineTest, ChangesOfOneThingAreNotTriedTogether) {
  EXPECT_TRUE(Combine("rope_theta", "pairing"));
  EXPECT_TRUE(Combine("spec", "layout"));
  EXPECT_FALSE(Combine("rope_theta", "rope_theta"));
  EXPECT_FALSE(Combine("spec", "window"));
  EXPECT_FALSE(Combine("scaling", "spec"));
  EXPECT_FALSE(Combine("rotation", "layout"));
}

}  // namespace
}  // namespace phasor::cli
