// SPDX-License-Identifier: Apache-2.0
// The rows of a move of keys: a row is a token of all its layers, and the rows are the tokens of
// all groups, group after group. In COMPARE, a kernel writes results for each row, a RowDifference
// for each head of each layer. Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_MOVE_ROWS_H_
#define PHASOR_KERNELS_CUDA_MOVE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/cuda/items.h"

namespace phasor::cuda {

// A group, and the number of a row in it.
struct GroupRow {
  size_t group = 0;
  int64_t row = 0;
};
GroupRow FindGroup(const MoveJob& job, int64_t row);

// A plane of a group, and where its results are among those of a row.
struct GroupPlane {
  const MovePlane* plane = nullptr;
  size_t number = 0;  // in the job
  int64_t result = 0;
};
// The planes of a group that a job moves or compares.
std::vector<GroupPlane> PlanesOf(const MoveJob& job, size_t group);

int64_t RowsOf(const MoveJob& job);
// How many rows from `first` on are of one group.
int64_t RowsOfGroup(const MoveJob& job, int64_t first);

// The bytes that a row has in a plane of this form, or in all its planes; at least 1.
int64_t RowBytes(const KeyForm& form);
int64_t TokenBytes(const MoveJob& job, int64_t row);
// What a move reads and writes.
JobBytes BytesOf(const MoveJob& job);

// COMPARE: the bytes of a row's results; otherwise 0.
int64_t ResultBytes(const MoveJob& job);
// COMPARE: begins the reports of a job, and adds the results of a slice, whose rows are of one
// group, to them. Slices come in the order of their rows.
void ClearReports(const MoveJob& job);
void AddResults(const MoveJob& job, Slice slice, const std::byte* results);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_MOVE_ROWS_H_
