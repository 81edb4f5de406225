// SPDX-License-Identifier: Apache-2.0
// Random changes to requests: to their bytes, and to their fields, which pass the parser.
#ifndef PHASOR_TESTS_FUZZ_MUTATOR_H_
#define PHASOR_TESTS_FUZZ_MUTATOR_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/message.h"

namespace phasor::fuzz {

// The message type of an input's method, see CheckRequest.
std::unique_ptr<google::protobuf::Message> NewRequest(uint8_t method);

// Gives `request` as many raw entries, of the lengths, as its tensors need; those that are invalid
// or large get none.
void RepairRaw(google::protobuf::Message* request);

// Deterministic: equal seeds and corpora give equal sequences. Threads: one at a time.
class Mutator {
 public:
  Mutator(uint64_t seed, std::vector<std::string> corpus)
      : random_(seed), corpus_(std::move(corpus)) {}

  // An input of the corpus, changed a few times.
  std::string Next();

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }
  const std::string& Pick() { return corpus_[Below(corpus_.size())]; }
  void ChangeBytes(std::string* input);
  void ChangeFields(std::string* input);
  void ChangeField(google::protobuf::Message* message);
  void SetField(google::protobuf::Message* message, const google::protobuf::FieldDescriptor* field);
  int64_t Integer();
  double Real();

  std::mt19937_64 random_;
  const std::vector<std::string> corpus_;
};

}  // namespace phasor::fuzz

#endif  // PHASOR_TESTS_FUZZ_MUTATOR_H_
