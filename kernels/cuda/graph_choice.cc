// SPDX-License-Identifier: Apache-2.0
// Times one small trip as a graph and call by call, and compares the medians.
#include "kernels/cuda/graph_choice.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/slots.h"
#include "kernels/plan/plan.h"

namespace phasor::cuda {
namespace {

constexpr size_t kRounds = 15;
constexpr double kWorthIt = 0.95;  // of the time without a graph
constexpr int64_t kTokenHeads = 8, kTokenLanes = 128;

using Seconds = std::chrono::duration<double>;
using Times = std::array<Seconds, kRounds>;

Seconds Median(Times times) {
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// The time of `queue` and of the wait for what it queued.
template <typename F>
absl::StatusOr<Seconds> TimeOf(F queue, Driver& driver, Stream stream) {
  const auto begun = std::chrono::steady_clock::now();
  PHASOR_RETURN_IF_ERROR(queue());
  PHASOR_RETURN_IF_ERROR(driver.Synchronize(stream));
  return std::chrono::steady_clock::now() - begun;
}

absl::StatusOr<bool> Compare(const Trip& trip, Driver& driver, Stream stream) {
  int64_t launched = 0;
  const auto queue = [&] { return QueueTrip(trip, driver, stream, &launched); };
  const auto run_graph = [&] { return driver.RunGraph(trip, stream); };
  Times apart, together;
  // The first round makes the graph and loads the kernel, so its times are overwritten.
  for (size_t round = 0; round <= kRounds; ++round) {
    PHASOR_ASSIGN_OR_RETURN(apart[round % kRounds], TimeOf(queue, driver, stream));
    PHASOR_ASSIGN_OR_RETURN(together[round % kRounds], TimeOf(run_graph, driver, stream));
  }
  return Median(together) < kWorthIt * Median(apart);
}

absl::StatusOr<bool> CompareIn(Slot& slot, Driver& driver) {
  Spec spec;
  spec.preset = "llama-3";
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(spec, "spec"));
  PHASOR_ASSIGN_OR_RETURN(const auto plan, CompilePlan(resolved));
  PHASOR_ASSIGN_OR_RETURN(const PositionSource position,
                          MakePositionSource(AxisRange{IntegerRange{0, 1, 1}}, 1, "positions"));
  std::vector<std::byte> token(kTokenHeads * kTokenLanes * 2);
  const RotaryStrides strides{0, kTokenHeads * kTokenLanes * 2, kTokenLanes * 2};
  RotaryJob rotary;
  rotary.plan = plan.get();
  rotary.positions = &position;
  rotary.tokens = 1;
  rotary.tensors = {{Dtype::kBFloat16, kTokenHeads, token.data(), strides, token.data(), strides}};
  const Job job = rotary;
  Chunk chunk(slot.capacity);
  chunk.Add(job, 0);
  return Compare(chunk.StageIn(slot), driver, slot.stream);
}

}  // namespace

bool AreGraphsSooner(Driver& driver) {
  Slots slots(&driver, 1);
  const absl::StatusOr<Slot*> slot = slots.Take(1, /*wait=*/true);
  if (!slot.ok()) return false;
  const absl::StatusOr<bool> sooner = CompareIn(**slot, driver);
  driver.Synchronize((*slot)->stream).IgnoreError();
  slots.Give(*slot);
  return sooner.ok() && *sooner;
}

}  // namespace phasor::cuda
