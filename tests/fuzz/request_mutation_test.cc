// SPDX-License-Identifier: Apache-2.0
// Replays the corpus and random changes of it. Nothing may crash, every error code must be one that
// a caller's mistake can cause, and no allocation may have a size that a message only claims.
//
// PHASOR_FUZZ_RUNS sets the number of mutations, 5000 by default; PHASOR_FUZZ_SEED the first seed.
// --full: 100000 mutations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "tests/fuzz/check_request.h"
#include "tests/fuzz/mutator.h"

namespace {

// Largest single allocation since it was reset.
std::atomic<size_t> largest_allocation = 0;

void* Allocate(size_t size) {
  if (size > largest_allocation.load(std::memory_order_relaxed)) {
    largest_allocation.store(size, std::memory_order_relaxed);
  }
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace phasor::fuzz {
namespace {

bool full = false;

// The response, and tables of the widest spec; inputs themselves are far smaller.
constexpr size_t kMaxAllocation = 4 << 20;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<std::string> Corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PHASOR_FUZZ_CORPUS)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Runs one input; whether it reached the backend.
bool Check(const std::string& input) {
  largest_allocation = 0;
  const Outcome outcome =
      CheckRequest({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
  EXPECT_EQ(outcome.violation, "") << "input: " << absl::CHexEscape(input);
  EXPECT_LE(largest_allocation.load(), kMaxAllocation) << "input: " << absl::CHexEscape(input);
  return outcome.computed;
}

TEST(RequestMutationTest, CorpusIsAnsweredAndMostOfItIsComputed) {
  const std::vector<std::string> corpus = Corpus();
  ASSERT_GE(corpus.size(), 15u) << PHASOR_FUZZ_CORPUS;
  const auto computed = std::count_if(corpus.begin(), corpus.end(), Check);
  EXPECT_GE(computed * 2, static_cast<int64_t>(corpus.size()));
}

TEST(RequestMutationTest, EveryPrefixOfTheCorpusIsAnswered) {
  for (const std::string& input : Corpus()) {
    for (size_t size = 2; size < input.size() && !HasFailure(); ++size) {
      Check(input.substr(0, size));
    }
  }
}

TEST(RequestMutationTest, MutationsAreAnsweredAndSomeAreComputed) {
  const uint64_t runs = FromEnvironment("PHASOR_FUZZ_RUNS", full ? 100'000 : 5'000);
  const uint64_t seed = FromEnvironment("PHASOR_FUZZ_SEED", 1);
  Mutator mutator(seed, Corpus());
  uint64_t computed = 0;
  for (uint64_t run = 0; run < runs && !HasFailure(); ++run) {
    SCOPED_TRACE(::testing::Message() << "PHASOR_FUZZ_SEED=" << seed << ", run " << run);
    if (Check(mutator.Next())) ++computed;
  }
  std::cout << runs << " mutations from seed " << seed << ", " << computed << " computed\n";
  RecordProperty("computed", static_cast<int>(computed));
  // Otherwise the mutations would only test the first check.
  EXPECT_GT(computed * 20, runs);
}

}  // namespace
}  // namespace phasor::fuzz

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (absl::string_view(argv[i]) == "--full") phasor::fuzz::full = true;
  }
  return RUN_ALL_TESTS();
}
