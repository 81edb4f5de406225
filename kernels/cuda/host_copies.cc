// SPDX-License-Identifier: Apache-2.0
// Copies the tensors of a job between the device and host memory, and points the job to the copies.
#include "kernels/cuda/host_copies.h"

#include <variant>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cuda {
namespace {

constexpr int64_t kAlignment = 64;

// Points the job to the copies that exist.
template <typename RowJob>
void ReplaceRows(const JobRows& rows, const std::byte* in, std::byte* out, RowJob& job) {
  if (in != nullptr) {
    job.add_to = in;
    job.add_to_row_bytes = rows.in[0].row_bytes();
    if constexpr (std::is_same_v<RowJob, BiasJob>) job.add_to_head_bytes = rows.in[0].bytes;
  }
  if (out != nullptr) {
    job.out = out;
    job.out_row_bytes = rows.out[0].row_bytes();
    if constexpr (std::is_same_v<RowJob, BiasJob>) job.out_head_bytes = rows.out[0].bytes;
  }
}

RotaryStrides DenseStrides(const HostRows& rows) {
  return {rows.tokens * rows.row_bytes(), rows.row_bytes(), rows.bytes};
}

// The input that result i is computed from; nullptr: there is no such tensor.
const HostRows* InputOf(const JobRows& rows, size_t i) {
  return i < rows.in.size() ? &rows.in[i] : nullptr;
}

// Whether input and result are the same memory and so share one copy.
bool SharesCopy(const HostRows* source, const HostRows& result) {
  return source != nullptr && source->on_device && source->base == result.base;
}

}  // namespace

int64_t HostCopies::BytesFor(const Job& job, const JobRows& rows) {
  int64_t row_bytes = 0;
  for (size_t i = 0; i < rows.out.size(); ++i) {
    const HostRows* const source = InputOf(rows, i);
    const HostRows& result = rows.out[i];
    if (source != nullptr && source->on_device) row_bytes += source->row_bytes();
    if (result.on_device && !SharesCopy(source, result)) row_bytes += result.row_bytes();
  }
  return RowsOf(job) * row_bytes;
}

absl::StatusOr<HostCopies> HostCopies::Make(const Job& job, const JobRows& rows, Driver* driver,
                                            Stream stream) {
  HostCopies copies(job, driver, stream);
  copies.all_ = {0, RowsOf(job)};
  absl::Status copied;
  for (size_t i = 0; copied.ok() && i < rows.out.size(); ++i) copied = copies.CopyTensor(rows, i);
  // Wait, so that queued copies do not write into memory that was freed.
  const absl::Status done = driver->Synchronize(stream);
  PHASOR_RETURN_IF_ERROR(copied);
  PHASOR_RETURN_IF_ERROR(done);
  return copies;
}

absl::Status HostCopies::CopyTensor(const JobRows& rows, size_t i) {
  const HostRows* const source = InputOf(rows, i);
  const HostRows& result = rows.out[i];
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  if (source != nullptr && source->on_device) {
    PHASOR_ASSIGN_OR_RETURN(in, NewCopy(*source));
    absl::Status copied;
    std::byte* to = in;
    ForEachRun(*source, all_, [&](const std::byte* run, int64_t bytes) {
      if (copied.ok()) copied = driver_.CopyToHost(to, run, bytes, stream_);
      to += bytes;
    });
    PHASOR_RETURN_IF_ERROR(copied);
  }
  if (result.on_device) {
    out = in;
    if (!SharesCopy(source, result)) {
      PHASOR_ASSIGN_OR_RETURN(out, NewCopy(result));
    }
    outputs_.push_back({result, out});
  }
  Replace(rows, i, in, out);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> HostCopies::NewCopy(const HostRows& rows) {
  const int64_t bytes = all_.count * rows.row_bytes();
  auto* const memory = static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, static_cast<size_t>(AlignUp(bytes + 1, kAlignment))));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        StrCat("cuda: no memory for a copy of ", bytes, " bytes of the device's"));
  }
  memory_.emplace_back(memory);
  return memory;
}

void HostCopies::Replace(const JobRows& rows, size_t i, std::byte* in, std::byte* out) {
  if (auto* const encode = std::get_if<EncodeJob>(&job_))
    return ReplaceRows(rows, in, out, *encode);
  if (auto* const lookup = std::get_if<LookupJob>(&job_))
    return ReplaceRows(rows, in, out, *lookup);
  if (auto* const bias = std::get_if<BiasJob>(&job_)) return ReplaceRows(rows, in, out, *bias);
  RotaryTensor& tensor = std::get<RotaryJob>(job_).tensors[i];
  if (in != nullptr) {
    tensor.x = in;
    tensor.x_strides = DenseStrides(rows.in[i]);
  }
  if (out != nullptr) {
    tensor.y = out;
    tensor.y_strides = DenseStrides(rows.out[i]);
    tensor.y_offsets = nullptr;
  }
}

absl::Status HostCopies::WriteBack() {
  absl::Status copied;
  for (const Output& output : outputs_) {
    const std::byte* from = output.copy;
    ForEachRun(output.rows, all_, [&](std::byte* run, int64_t bytes) {
      if (copied.ok() && run != nullptr) copied = driver_.CopyToDevice(run, from, bytes, stream_);
      from += bytes;
    });
  }
  const absl::Status done = driver_.Synchronize(stream_);
  return copied.ok() ? done : copied;
}

}  // namespace phasor::cuda
