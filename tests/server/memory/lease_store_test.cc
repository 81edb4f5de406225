// SPDX-License-Identifier: Apache-2.0
// Tests tokens, quotas and the end of leases.
#include "server/memory/lease_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/memfd.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::Memfd;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

auto Exhausted(const char* message) {
  return StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(message));
}

TEST(LeaseStoreTest, ATokenLeadsToItsMemory) {
  LeaseStore store(OwnerLimits{});
  const Memfd one("one"), three("three");
  const auto first = store.Add(one.fd(), "me");
  const auto second = store.Add(three.fd(), "me");
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ((*store.Find(*first, "x"))->bytes(), 3);
  EXPECT_EQ((*store.Find(*second, "x"))->bytes(), 5);
  EXPECT_EQ(store.stats().pieces, 2);
  EXPECT_EQ(store.stats().bytes, 8);
}

TEST(LeaseStoreTest, TokensAreLongAndDiffer) {
  LeaseStore store(OwnerLimits{});
  const Memfd memfd("x");
  std::set<std::string> tokens = {store.instance()};
  for (int i = 0; i < 100; ++i) tokens.insert(*store.Add(memfd.fd(), "me"));
  EXPECT_EQ(tokens.size(), 101u);
  for (const std::string& token : tokens) {
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
  EXPECT_NE(LeaseStore(OwnerLimits{}).instance(), store.instance());
}

TEST(LeaseStoreTest, WhatWasRemovedIsNotFoundAndStaysMappedForItsUsers) {
  LeaseStore store(OwnerLimits{});
  std::shared_ptr<const SealedMemory> used;
  std::string token;
  {
    const Memfd memfd("hello");
    token = *store.Add(memfd.fd(), "me");
    used = *store.Find(token, "x");
  }
  store.Remove(token);
  store.Remove(token);
  EXPECT_EQ(**used->Read(4, 1, "x"), std::byte{'o'});
  // Until nobody uses it, it counts: it is mapped.
  EXPECT_EQ(store.stats().pieces, 1);
  EXPECT_EQ(store.stats().bytes, 5);
  used.reset();
  EXPECT_EQ(store.stats().pieces, 0);
  EXPECT_EQ(store.stats().bytes, 0);
  for (const std::string& unknown : {token, std::string(), std::string(32, '0')}) {
    EXPECT_THAT(store.Find(unknown, "item.tensors[0].tensor.region.region"),
                StatusIs(absl::StatusCode::kNotFound,
                         HasSubstr("item.tensors[0].tensor.region.region: no such lease")));
  }
}

TEST(LeaseStoreTest, QuotasAreEveryOwnersOwn) {
  LeaseStore store({.max_bytes = 10, .max_pieces = 2});
  const Memfd six("sixsix"), four("four"), one("1");
  const std::string token = *store.Add(six.fd(), "a");
  EXPECT_THAT(store.Add(six.fd(), "a"), Exhausted("6 bytes beside 6; must be at most 10"));
  EXPECT_THAT(store.Add(six.fd(), "b"), IsOk());
  EXPECT_THAT(store.Add(four.fd(), "a"), IsOk());
  EXPECT_THAT(store.Add(one.fd(), "a"), Exhausted("2 are held already; must be at most 2"));
  store.Remove(token);
  EXPECT_THAT(store.Add(one.fd(), "a"), IsOk());
}

TEST(LeaseStoreTest, WhatIsRefusedCostsNothing) {
  LeaseStore store({.max_bytes = 10, .max_pieces = 2});
  const Memfd unsealed("x", 0), large(int64_t{11});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(store.Add(unsealed.fd(), "a").status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(store.Add(large.fd(), "a"), Exhausted("11 bytes"));
  }
  EXPECT_EQ(store.stats().pieces, 0);
  EXPECT_EQ(store.stats().bytes, 0);
}

}  // namespace
}  // namespace phasor::memory
