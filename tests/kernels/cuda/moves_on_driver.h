// SPDX-License-Identifier: Apache-2.0
// Runs the kernels that move keys on a driver's own device memory, without a backend. A backend
// moves keys of other processes only, which a test on a GPU would need a second process for.
#ifndef PHASOR_TESTS_KERNELS_CUDA_MOVES_ON_DRIVER_H_
#define PHASOR_TESTS_KERNELS_CUDA_MOVES_ON_DRIVER_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/driver.h"
#include "tests/support/host_grid.h"
#include "tests/support/random_moves.h"

namespace phasor::testing {

// Copies the pools of a move to the device, moves or compares the keys there, and copies the pools
// back.
// Returns the driver's errors. `launches` is increased by those that it took.
inline absl::Status RunOnDriver(cuda::Driver& driver, RandomMove& random, int64_t* launches) {
  MoveJob move = random.move();
  std::vector<int64_t> places;
  int64_t bytes = 0;
  for (const auto& pool : random.memory()) {
    places.push_back(cuda::AlignUp(bytes, 256));
    bytes = places.back() + pool->size_bytes();
  }
  PHASOR_ASSIGN_OR_RETURN(std::byte* const pools, driver.Allocate(bytes));
  for (size_t i = 0; i < places.size(); ++i) move.pools[i] = pools + places[i];
  const int64_t result_bytes = cuda::RowsOf(move) * cuda::ResultBytes(move);
  PHASOR_ASSIGN_OR_RETURN(std::byte* const results,
                          driver.Allocate(std::max<int64_t>(result_bytes, 1)));
  cuda::Arena count;
  cuda::LaunchList counted;
  const int processors = driver.device().processors;
  AddWhereTheyLie(Job(move), int64_t{1} << 40, counted, count, processors, results);
  counted.Finish(count, nullptr);
  PHASOR_ASSIGN_OR_RETURN(std::byte* const on_device,
                          driver.Allocate(std::max<int64_t>(count.used(), 1)));
  std::vector<std::max_align_t> memory(
      static_cast<size_t>(count.used()) / sizeof(std::max_align_t) + 1);
  auto* const host = reinterpret_cast<std::byte*>(memory.data());
  cuda::Arena arena(host, count.used());
  cuda::LaunchList list;
  AddWhereTheyLie(Job(move), int64_t{1} << 40, list, arena, processors, results);
  const std::vector<cuda::Launch> steps = list.Finish(arena, on_device);
  PHASOR_ASSIGN_OR_RETURN(const cuda::Stream stream, driver.CreateStream());
  for (size_t i = 0; i < places.size(); ++i) {
    const Tensor& pool = *random.memory()[i];
    PHASOR_RETURN_IF_ERROR(
        driver.CopyToDevice(move.pools[i], pool.data(), pool.size_bytes(), stream));
  }
  if (count.used() > 0) {
    PHASOR_RETURN_IF_ERROR(driver.CopyToDevice(on_device, host, count.used(), stream));
  }
  for (const cuda::Launch& step : steps) PHASOR_RETURN_IF_ERROR(driver.Run(step, stream));
  for (size_t i = 0; i < places.size(); ++i) {
    Tensor& pool = *random.memory()[i];
    PHASOR_RETURN_IF_ERROR(
        driver.CopyToHost(pool.data(), move.pools[i], pool.size_bytes(), stream));
  }
  std::vector<std::byte> found(static_cast<size_t>(result_bytes));
  if (result_bytes > 0) {
    PHASOR_RETURN_IF_ERROR(driver.CopyToHost(found.data(), results, result_bytes, stream));
  }
  PHASOR_RETURN_IF_ERROR(driver.Synchronize(stream));
  if (move.mode == MoveMode::kCompare) cuda::ClearReports(move);
  for (int64_t first = 0; result_bytes > 0 && first < cuda::RowsOf(move);) {
    const cuda::Slice slice = cuda::SliceFrom(Job(move), first, int64_t{1} << 40);
    cuda::AddResults(move, slice, found.data() + first * cuda::ResultBytes(move));
    first += slice.count;
  }
  driver.DestroyStream(stream);
  driver.Free(results);
  driver.Free(on_device);
  driver.Free(pools);
  *launches += static_cast<int64_t>(steps.size());
  return absl::OkStatus();
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_KERNELS_CUDA_MOVES_ON_DRIVER_H_
