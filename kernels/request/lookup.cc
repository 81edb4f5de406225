// SPDX-License-Identifier: Apache-2.0
// Checks requests for rows of a learned table, checks their positions, and makes their jobs.
#include "kernels/request/lookup.h"

#include <algorithm>
#include <string>

#include "kernels/base/invalid.h"
#include "kernels/base/sha256.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/integer_positions.h"

namespace phasor {
namespace {

std::string FingerprintOf(const Table& table) {
  return Sha256Hex(StrCat("table ", kNumericsVersion, " ", Name(table.dtype), " ", table.rows, " ",
                          table.columns, " ", table.sha256))
      .substr(0, 32);
}

bool IsInside(const Table& table, const Interval& interval) {
  return interval.min >= 0 && interval.max < table.rows;
}

// A token at or before the first one without a row. With several sequences, it is in the same
// sequence as that one.
int64_t SequenceOfFirstOutside(const PositionSource& positions, const Table& table) {
  int64_t begin = 0;
  for (size_t s = 0; s < positions.ends.size(); ++s) {
    const int64_t end = positions.ends[s];
    // May wrap on the way; the first and last position fit.
    const uint64_t start = static_cast<uint64_t>(positions.starts[s]);
    const Interval sequence = {static_cast<int64_t>(start + static_cast<uint64_t>(begin)),
                               static_cast<int64_t>(start + static_cast<uint64_t>(end - 1))};
    if (begin < end && !IsInside(table, sequence)) return begin;
    begin = end;
  }
  return 0;
}

// The error for the first position without a row; there must be one. In ranges and sequences the
// loop passes at most as many positions before it as the table has rows.
absl::Status FirstOutside(const PositionSource& positions, const Table& table,
                          std::string_view path) {
  constexpr int64_t kTile = 256;
  PositionRoom<kTile> room;
  Position* const tile = room.data();
  int64_t first = SequenceOfFirstOutside(positions, table);
  for (; first < positions.count(); first += kTile) {
    const int64_t count = std::min(kTile, positions.count() - first);
    ReadPositions(positions, first, count, tile);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = tile[i].whole;
      if (IsInside(table, {position, position})) continue;
      return absl::OutOfRangeError(StrCat(path, ": position ", position, " of token ", first + i,
                                          ", table '", table.name, "' ends at ", table.rows - 1,
                                          "; must be in it or out_of_range CLIP"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSpecIsEmpty(const EncodeRequest& request, std::string_view path) {
  static const auto* const kNoSpec = new Spec;
  if (request.spec == *kNoSpec) return absl::OkStatus();
  return Invalid(path, ".table: set beside spec; must be one of the two");
}

}  // namespace

absl::StatusOr<PreparedEncode> PrepareLookup(const EncodeRequest& request,
                                             const TableSource* tables, std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckSpecIsEmpty(request, path));
  PreparedEncode out;
  PHASOR_ASSIGN_OR_RETURN(out.table, FindTable(tables, request.table, StrCat(path, ".table")));
  out.out_of_range = request.out_of_range;
  const std::string positions_path = StrCat(path, ".positions");
  PHASOR_RETURN_IF_ERROR(CheckIntegerPositions(request.positions, positions_path));
  PHASOR_ASSIGN_OR_RETURN(out.positions, MakePositionSource(request.positions, 1, positions_path));
  out.positions_bytes = out.positions.data_bytes;
  out.output = {request.output_dtype, {out.positions.count(), out.table->columns}};
  PHASOR_ASSIGN_OR_RETURN(out.output_bytes, DenseBytes(out.output, positions_path));
  PHASOR_RETURN_IF_ERROR(PrepareAddTo(request, path, out));
  out.table_fingerprint = FingerprintOf(*out.table);
  PHASOR_RETURN_IF_ERROR(CheckPins(request.pins, out.table_fingerprint, path));
  if (out.positions.kind != PositionSource::Kind::kTensor) {
    PHASOR_RETURN_IF_ERROR(CheckLookupPositions(out, path));
  }
  return out;
}

absl::Status CheckLookupPositions(const PreparedEncode& prepared, std::string_view path) {
  if (prepared.out_of_range == OutOfRange::kClip || prepared.positions.count() == 0) {
    return absl::OkStatus();
  }
  if (IsInside(*prepared.table, IntervalOf(prepared.positions, 0))) return absl::OkStatus();
  return FirstOutside(prepared.positions, *prepared.table, StrCat(path, ".positions"));
}

LookupJob MakeLookupJob(const PreparedEncode& prepared, const std::byte* add_to,
                        std::byte* output) {
  const int64_t size = SizeOf(prepared.output.dtype);
  LookupJob job;
  job.table = prepared.table.get();
  job.positions = &prepared.positions;
  job.dtype = prepared.output.dtype;
  job.out = output;
  job.out_row_bytes = prepared.table->columns * size;
  if (prepared.add_to_bytes > 0) {
    const std::vector<int64_t>& strides = prepared.add_to->strides;
    job.add_to = add_to;
    job.add_to_row_bytes = strides.empty() ? job.out_row_bytes : strides[0] * size;
  }
  job.embedding_scale = prepared.embedding_scale;
  return job;
}

}  // namespace phasor
