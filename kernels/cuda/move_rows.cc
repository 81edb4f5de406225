// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/move_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/bounded.h"

namespace phasor::cuda {
namespace {

constexpr auto kResultBytes = static_cast<int64_t>(sizeof(RowDifference));

}  // namespace

GroupRow FindGroup(const MoveJob& job, int64_t row) {
  size_t group = 0;
  while (row >= (*job.groups)[group].count()) row -= (*job.groups)[group++].count();
  return {group, row};
}

std::vector<GroupPlane> PlanesOf(const MoveJob& job, size_t group) {
  std::vector<GroupPlane> planes;
  const bool compares = job.mode == MoveMode::kCompare;
  const size_t count = compares ? static_cast<size_t>(job.report_count) : job.planes->size();
  int64_t result = 0;
  for (size_t i = 0; i < count; ++i) {
    const MovePlane& plane = (*job.planes)[i];
    if (plane.tokens != group) continue;
    planes.push_back({&plane, i, result});
    result += (*job.forms)[plane.form].heads * kResultBytes;
  }
  return planes;
}

int64_t RowBytes(const KeyForm& form) {
  return std::max<int64_t>(form.heads, 1) *
         std::max<int64_t>(form.bytes_before + form.bytes_from, 1);
}

int64_t RowsOf(const MoveJob& job) {
  int64_t rows = 0;
  for (const MoveTokens& tokens : *job.groups) rows += tokens.count();
  return rows;
}

JobBytes BytesOf(const MoveJob& job) {
  int64_t bytes = 0;
  for (const MovePlane& plane : *job.planes) {
    const int64_t tokens = (*job.groups)[plane.tokens].count();
    bytes = BoundedSum(bytes, BoundedProduct(tokens, RowBytes((*job.forms)[plane.form])));
  }
  bytes = std::min(bytes, int64_t{1} << 50);  // so that many jobs can be added up
  return {bytes, bytes};
}

int64_t TokenBytes(const MoveJob& job, int64_t row) {
  const size_t group = FindGroup(job, row).group;
  int64_t bytes = 1;
  for (const MovePlane& plane : *job.planes) {
    if (plane.tokens == group) bytes += RowBytes((*job.forms)[plane.form]);
  }
  return bytes;
}

int64_t RowsOfGroup(const MoveJob& job, int64_t first) {
  const GroupRow at = FindGroup(job, first);
  return (*job.groups)[at.group].count() - at.row;
}

int64_t ResultBytes(const MoveJob& job) {
  int64_t most = 0;
  for (size_t group = 0; job.mode == MoveMode::kCompare && group < job.groups->size(); ++group) {
    const std::vector<GroupPlane> planes = PlanesOf(job, group);
    if (planes.empty()) continue;
    const auto& [plane, number, result] = planes.back();
    most = std::max(most, result + (*job.forms)[plane->form].heads * kResultBytes);
  }
  return most;
}

void ClearReports(const MoveJob& job) {
  const KeyReport none;
  for (int64_t i = 0; i < job.report_count; ++i) {
    std::memcpy(job.reports + i * int64_t{sizeof none}, &none, sizeof none);
  }
}

void AddResults(const MoveJob& job, Slice slice, const std::byte* results) {
  const GroupRow at = FindGroup(job, slice.first);
  const MoveTokens& tokens = (*job.groups)[at.group];
  const int64_t token_bytes = ResultBytes(job);
  for (const auto& [plane, number, result] : PlanesOf(job, at.group)) {
    const KeyForm& form = (*job.forms)[plane->form];
    std::byte* const stored = job.reports + number * sizeof(KeyReport);
    KeyReport report;
    std::memcpy(&report, stored, sizeof report);
    for (int64_t t = 0; t < slice.count; ++t) {
      for (int64_t h = 0; h < form.heads; ++h) {
        RowDifference row;
        std::memcpy(&row, results + t * token_bytes + result + h * kResultBytes, sizeof row);
        const int64_t token = at.row + t;
        report.Add(row, form.head_dim, job.tolerances[number], token,
                   tokens.to_slots[static_cast<size_t>(token)], h);
      }
    }
    std::memcpy(stored, &report, sizeof report);
  }
}

}  // namespace phasor::cuda
