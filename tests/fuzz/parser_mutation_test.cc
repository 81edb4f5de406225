// SPDX-License-Identifier: Apache-2.0
// Replays the corpus of parsers and random changes of it, for builds without libFuzzer.
//
// PHASOR_FUZZ_RUNS sets the number of changes, 5000 by default; PHASOR_FUZZ_SEED the first seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/fuzz/check_parsers.h"

namespace phasor::fuzz {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// By the name of the file, so that runs are the same everywhere.
std::vector<std::string> Corpus() {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(PHASOR_PARSER_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = std::string((std::istreambuf_iterator<char>(file)), {});
  }
  std::vector<std::string> corpus;
  for (auto& [name, bytes] : files) corpus.push_back(std::move(bytes));
  return corpus;
}

bool Check(const std::string& input) {
  const ParserOutcome outcome =
      CheckParser({reinterpret_cast<const uint8_t*>(input.data()), input.size()});
  EXPECT_EQ(outcome.violation, "") << "input: " << absl::CHexEscape(input);
  return outcome.accepted;
}

TEST(ParserMutationTest, EveryParserAcceptsSomethingOfTheCorpus) {
  std::set<int> accepting;
  for (const std::string& input : Corpus()) {
    if (Check(input)) accepting.insert(input[0] % kParserCount);
  }
  for (int parser = 0; parser < kParserCount; ++parser) {
    EXPECT_TRUE(accepting.contains(parser)) << parser;
  }
}

TEST(ParserMutationTest, ChangesOfTheCorpusAreAcceptedOrRefusedByName) {
  const std::vector<std::string> corpus = Corpus();
  ASSERT_FALSE(corpus.empty());
  const uint64_t runs = FromEnvironment("PHASOR_FUZZ_RUNS", 5000);
  std::mt19937_64 random(FromEnvironment("PHASOR_FUZZ_SEED", 1));
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (uint64_t run = 0; run < runs && !::testing::Test::HasFailure(); ++run) {
    std::string input = corpus[below(corpus.size())];
    for (size_t change = 0; change <= below(4); ++change) {
      const size_t at = 1 + below(input.size());
      switch (below(4)) {
        case 0:
          if (at < input.size()) input[at] = static_cast<char>(random());
          break;
        case 1:
          input.insert(std::min(at, input.size()), 1 + below(8), static_cast<char>(random()));
          break;
        case 2:
          if (at < input.size()) input.erase(at, 1 + below(16));
          break;
        default: {
          const std::string& other = corpus[below(corpus.size())];
          input.resize(std::min(at, input.size()));
          input += other.substr(1 + below(other.size()));
        }
      }
    }
    Check(input);
  }
}

}  // namespace
}  // namespace phasor::fuzz
