// SPDX-License-Identifier: Apache-2.0
// The tensors of a job as rows of memory: what kernels read and write, on the host or on the
// device.
#ifndef PHASOR_KERNELS_CUDA_JOB_ROWS_H_
#define PHASOR_KERNELS_CUDA_JOB_ROWS_H_

#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/host_rows.h"

namespace phasor::cuda {

// The rows of one job. Threads: a plain value. Borrows the job's memory.
struct JobRows {
  std::vector<HostRows> in;   // add_to if there is one, or every tensor that is rotated
  std::vector<HostRows> out;  // the output, or every tensor that is rotated
  // Rotary: true if a tensor is on the device, and rows are all lanes of every head. False: rows
  // are the lanes of SentLanes.
  bool whole_heads = false;
  // kDevice: some tensors are on the device, and none is gone.
  Place place = Place::kHost;
  // Tensors on the device are aligned to their elements.
  bool aligned = true;
};

// `memory` tells which addresses are on the device; nullptr: none are. The table of a bias and all
// positions are always in host memory. Of a move of keys, only the results
// of COMPARE are rows here.
JobRows RowsOfTensors(const Job& job, const DeviceMemory* memory);

// Whether a job overwrites memory that it reads, so that it must not run twice. Gathered pieces do
// not count, because their originals are still there.
bool IsInPlace(const Job& job);

// Lanes of a head.
struct LaneRange {
  int64_t first = 0;
  int64_t count = 0;
};

// The lanes that travel if no tensor is on the device: those that rotate; all if the types differ.
LaneRange SentLanes(const RotaryJob& job, const RotaryTensor& tensor);

// The given lanes of every head of a tensor, where it is read and where it is written.
HostRows InputRows(const RotaryJob& job, const RotaryTensor& tensor, LaneRange lanes);
HostRows OutputRows(const RotaryJob& job, const RotaryTensor& tensor, LaneRange lanes);

// Where a tensor is read. Gathered pieces are read from y.
std::pair<const std::byte*, RotaryStrides> SourceOf(const RotaryTensor& tensor);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_JOB_ROWS_H_
