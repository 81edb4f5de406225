// SPDX-License-Identifier: Apache-2.0
// Finds the instruction sets that this machine can run, and names them.
#include "kernels/cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace phasor::cpu {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports of clang 14 does not know F16C.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

std::vector<Target> Detect() {
  std::vector<Target> targets;
#if defined(__x86_64__)
  // What Highway's AVX3 and AVX2 code may use. The builtins also check the operating system.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c();
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd");
  if (avx3) targets.push_back(Target::kAvx3);
  if (avx2) targets.push_back(Target::kAvx2);
#elif defined(__aarch64__)
  targets.push_back(Target::kArm);  // NEON
#endif
  targets.push_back(Target::kScalar);
  return targets;
}

}  // namespace

std::string_view Name(Target target) {
  switch (target) {
    case Target::kAvx3:
      return "AVX3";
    case Target::kAvx2:
      return "AVX2";
    case Target::kArm:
      return "ARM";
    case Target::kScalar:
      return "SCALAR";
  }
  return "?";
}

const std::vector<Target>& RunnableTargets() {
  static const std::vector<Target>* const targets = new std::vector<Target>(Detect());
  return *targets;
}

bool RoundsToBFloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

}  // namespace phasor::cpu
