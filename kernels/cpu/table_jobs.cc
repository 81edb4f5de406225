// SPDX-License-Identifier: Apache-2.0
// Cuts lookups and biases into tiles, reads their positions and calls the reference kernels.
#include "kernels/cpu/table_jobs.h"

#include <algorithm>

#include "kernels/reference/reference.h"

namespace phasor::cpu {
namespace {

constexpr int kBiasAxes = 2;
constexpr int64_t kQueryTile = 64;
constexpr int64_t kLookupTile = 256;

}  // namespace

void RunLookup(const LookupJob& job, int64_t first, int64_t count) {
  PositionRoom<kLookupTile> positions;
  LookupArgs args;
  args.table = job.table->data.get();
  args.table_dtype = job.table->dtype;
  args.table_rows = job.table->rows;
  args.columns = job.table->columns;
  args.positions = positions.data();
  args.dtype = job.dtype;
  args.out_row_bytes = job.out_row_bytes;
  args.add_to_row_bytes = job.add_to_row_bytes;
  args.embedding_scale = job.embedding_scale;
  for (int64_t row = first; row < first + count; row += args.rows) {
    args.rows = std::min(kLookupTile, first + count - row);
    ReadPositions(*job.positions, row, args.rows, positions.data());
    args.out = job.out + row * job.out_row_bytes;
    if (job.add_to != nullptr) args.add_to = job.add_to + row * job.add_to_row_bytes;
    reference::Lookup(args);
  }
}

int64_t BiasRows(const BiasJob& job) { return job.keys->count() == 0 ? 0 : job.queries->count(); }

int64_t BiasRowBytes(const BiasJob& job) { return job.keys->count() * SizeOf(job.dtype); }

void RunBias(const BiasJob& job, int64_t first, int64_t count) {
  PositionRoom<kQueryTile * kBiasAxes> queries;
  PositionRoom<kBiasTile * kBiasAxes> keys;
  const int64_t element = SizeOf(job.dtype);
  BiasArgs args;
  args.rule = job.rule;
  args.queries = queries.data();
  args.keys = keys.data();
  args.heads = job.heads;
  args.table_dtype = job.table_dtype;
  args.table = job.table;
  args.dtype = job.dtype;
  args.out_head_bytes = job.out_head_bytes;
  args.out_row_bytes = job.out_row_bytes;
  args.add_to_head_bytes = job.add_to_head_bytes;
  args.add_to_row_bytes = job.add_to_row_bytes;
  for (int64_t q = first; q < first + count; q += args.rows) {
    args.rows = std::min(kQueryTile, first + count - q);
    ReadPositions(*job.queries, q, args.rows, queries.data());
    for (int64_t k = 0; k < job.keys->count(); k += args.columns) {
      args.columns = std::min(kBiasTile, job.keys->count() - k);
      ReadPositions(*job.keys, k, args.columns, keys.data());
      args.out = job.out + q * job.out_row_bytes + k * element;
      if (job.add_to != nullptr) {
        args.add_to = job.add_to + q * job.add_to_row_bytes + k * element;
      }
      reference::Bias(args);
    }
  }
}

}  // namespace phasor::cpu
