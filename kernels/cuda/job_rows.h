// SPDX-License-Identifier: Apache-2.0
// The tensors of a job as rows of memory: what kernels read and write, wherever it lies.
#ifndef PHASOR_KERNELS_CUDA_JOB_ROWS_H_
#define PHASOR_KERNELS_CUDA_JOB_ROWS_H_

#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/host_rows.h"

namespace phasor::cuda {

struct JobRows {
  std::vector<HostRows> in;   // add_to if there is one, or every tensor that is rotated
  std::vector<HostRows> out;  // likewise
  // Rotary, one for each of `in`: the copy of the rotating lanes that kernels must read instead of
  // the tensor. It needs one if it is on the device and rotates in place from one pairing to the
  // other: threads overwrite lanes that other threads have yet to read. Else `bytes` is 0. The copy
  // goes to a buffer; `base` and strides are not set.
  std::vector<HostRows> copies;
  // Rotary: all lanes of every head, because a tensor is on the device. Else those of SentLanes.
  bool whole_heads = false;
  // kDevice: some are there, and none is gone.
  Place place = Place::kHost;
  // Those on the device stand on multiples of their elements.
  bool aligned = true;
};

// `memory` says what is on the device; nullptr: nothing. The table of a bias and all positions are
// in the host's memory.
JobRows RowsOfTensors(const Job& job, const DeviceMemory* memory);

// Whether a job reads memory that it writes, so that running it twice is wrong. Pieces that were
// gathered are still where they came from.
bool IsInPlace(const Job& job);

// Lanes of a head.
struct LaneRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Those that travel where no tensor is on the device: what rotates, or, where types differ, all.
LaneRange SentLanes(const RotaryJob& job, const RotaryTensor& tensor);

// Lanes of every head of a tensor, where it is read and where it is written.
HostRows InputRows(const RotaryJob& job, const RotaryTensor& tensor, LaneRange lanes);
HostRows OutputRows(const RotaryJob& job, const RotaryTensor& tensor, LaneRange lanes);

// Where a tensor is read: gathered pieces are in y.
std::pair<const std::byte*, RotaryStrides> SourceOf(const RotaryTensor& tensor);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_JOB_ROWS_H_
