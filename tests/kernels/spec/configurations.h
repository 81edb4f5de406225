// SPDX-License-Identifier: Apache-2.0
// Reads the specs of model configurations, or the errors of refused ones.
#ifndef PHASOR_TESTS_KERNELS_SPEC_CONFIGURATIONS_H_
#define PHASOR_TESTS_KERNELS_SPEC_CONFIGURATIONS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/spec/config_json.h"
#include "tests/support/status_matchers.h"

namespace phasor::testing {

inline Spec Config(const std::string& text) {
  Spec spec;
  spec.config_json = text;
  return spec;
}

inline Spec Layer(const std::string& text, const std::string& layer_type) {
  Spec spec = Config(text);
  spec.layer_type = layer_type;
  return spec;
}

inline Spec Part(const std::string& text, const std::string& sub_config) {
  Spec spec = Config(text);
  spec.sub_config = sub_config;
  return spec;
}

inline Spec Read(const Spec& user) {
  const auto spec = SpecFromConfigJson(user, "item.spec");
  EXPECT_THAT(spec, IsOk()) << user.config_json;
  return spec.ok() ? *spec : Spec();
}

inline void ExpectRefused(const Spec& user, const std::string& message) {
  EXPECT_THAT(SpecFromConfigJson(user, "spec"),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(message)))
      << user.config_json;
}

// The keys of a Llama, and `more`.
inline std::string Llama(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32)" +
         (more.empty() ? "" : ", " + more) + "}";
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_KERNELS_SPEC_CONFIGURATIONS_H_
