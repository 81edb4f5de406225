// SPDX-License-Identifier: Apache-2.0
// Deals the jobs of a call to devices, and runs the parts at once.
#include "kernels/devices_backend.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/cuda/items.h"
#include "kernels/self_test.h"

namespace phasor {
namespace {

// Calls `visit` with the first byte of each tensor that a job reads or writes and that may be on a
// device.
template <typename F>
void ForEachTensor(const Job& job, F visit) {
  std::visit(
      [&]<typename T>(const T& of) {
        if constexpr (std::is_same_v<T, RotaryJob>) {
          for (const RotaryTensor& tensor : of.tensors) {
            if (tensor.heads == 0) continue;
            if (tensor.pieces.empty() && tensor.x != tensor.y) visit(tensor.x);
            visit(tensor.y);
          }
        } else if constexpr (std::is_same_v<T, MoveJob>) {
          for (const std::byte* pool : of.pools) visit(pool);
        } else {
          visit(of.out);
          if (of.add_to != nullptr && of.add_to != of.out) visit(of.add_to);
        }
      },
      job);
}

DeviceList ListOf(const std::vector<std::unique_ptr<Backend>>& backends) {
  std::vector<DevicePort*> devices;
  for (const auto& backend : backends) devices.push_back(&backend->devices()[0]);
  return DeviceList(std::move(devices));
}

bool Works(const DevicePort& device) {
  return device.device_state().kind == DeviceState::Kind::kWorking;
}

// The self-test, which passes on the CPU, too, where the device fails.
absl::Status TestOnDevice(Backend& backend) {
  PHASOR_RETURN_IF_ERROR(SelfTest(backend));
  const DevicePort& device = backend.devices()[0];
  if (Works(device) && device.device_counts().jobs_that_it_failed == 0) return absl::OkStatus();
  const std::string error = device.device_state().error;
  return absl::InternalError(StrCat("self-test: the device fails kernels; check it and its driver",
                                    error.empty() ? "" : ": ", error));
}

}  // namespace

DevicesBackend::DevicesBackend(std::vector<std::unique_ptr<Backend>> backends,
                               int64_t portion_bytes)
    : devices_(ListOf(backends)),
      portion_bytes_(portion_bytes),
      helpers_(2 * static_cast<int>(backends.size())) {
  for (auto& backend : backends) lanes_.push_back({std::move(backend)});
}

BatchPolicy DevicesBackend::batch_policy() const {
  BatchPolicy all;
  for (const Lane& lane : lanes_) {
    const BatchPolicy one = lane.backend->batch_policy();
    if (one.bytes == 0) continue;
    const bool first = all.bytes == 0;
    all.least_bytes = first ? one.least_bytes : std::min(all.least_bytes, one.least_bytes);
    all.bytes = std::max(all.bytes, one.bytes);
    all.runs = one.runs + (first ? 0 : all.runs);
    all.early_runs = one.early_runs + (first ? 0 : all.early_runs);
  }
  return all;
}

absl::Status DevicesBackend::Run(absl::Span<const Job> jobs) {
  std::vector<JobResult> results(jobs.size());
  RunEach(jobs, absl::MakeSpan(results));
  for (JobResult& result : results) PHASOR_RETURN_IF_ERROR(std::move(result.status));
  return absl::OkStatus();
}

void DevicesBackend::RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) {
  const std::vector<Part> parts = Deal(jobs, results);
  std::vector<size_t> busy;
  for (size_t lane = 0; lane < parts.size(); ++lane) {
    if (!parts[lane].jobs.empty()) busy.push_back(lane);
  }
  const auto run = [&](int64_t k) {
    const size_t lane = busy[static_cast<size_t>(k)];
    RunPart(lane, parts[lane], jobs, results);
  };
  if (busy.empty()) return;
  if (busy.size() == 1) return run(0);
  helpers_.ParallelFor(static_cast<int64_t>(busy.size()), run);
}

std::vector<DevicesBackend::Part> DevicesBackend::Deal(absl::Span<const Job> jobs,
                                                       absl::Span<JobResult> results) {
  std::vector<Part> parts(lanes_.size());
  size_t host_lane = 0;
  int64_t portion = portion_bytes_;  // of host_lane; the first job begins another
  for (size_t i = 0; i < jobs.size(); ++i) {
    const cuda::JobBytes job = cuda::BytesOf(jobs[i]);
    const int64_t bytes = job.read + job.written;
    absl::StatusOr<std::optional<size_t>> own = std::nullopt;
    if (job.written > 0) own = LaneOf(jobs[i]);
    if (!own.ok()) {
      results[i] = {std::move(own).status(), name(), /*intact=*/true};
      continue;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!own->has_value()) {
      if (portion >= portion_bytes_) {
        host_lane = ShortestQueue();
        // A call that stays on the CPU need not be cut.
        const bool takes_host_tensors = lanes_[host_lane].backend->batch_policy().bytes > 0;
        portion = takes_host_tensors ? 0 : std::numeric_limits<int64_t>::min();
      }
      portion += bytes;
    }
    const size_t lane = own->value_or(host_lane);
    parts[lane].jobs.push_back(i);
    parts[lane].bytes += bytes;
    lanes_[lane].queued_bytes += bytes;
  }
  return parts;
}

bool DevicesBackend::IsOn(size_t lane, const std::byte* address) const {
  return address != nullptr && devices_[lane].Holds(address, 1);
}

absl::StatusOr<std::optional<size_t>> DevicesBackend::LaneOf(const Job& job) const {
  std::optional<size_t> lane, other;
  ForEachTensor(job, [&](const std::byte* address) {
    if (lane.has_value() && IsOn(*lane, address)) return;  // mostly
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (i == lane || !IsOn(i, address)) continue;
      (lane.has_value() ? other : lane) = i;
      return;
    }
  });
  if (!other.has_value()) return lane;
  return Invalid("cuda: tensors on ", NameOf(devices_[*lane]), " and on ", NameOf(devices_[*other]),
                 "; must be on one device");
}

size_t DevicesBackend::ShortestQueue() const {
  size_t best = 0;
  bool best_works = false;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const bool works = Works(devices_[i]);
    const bool shorter = lanes_[i].queued_bytes < lanes_[best].queued_bytes;
    if (works == best_works ? shorter : works) {
      best = i;
      best_works = works;
    }
  }
  return best;
}

void DevicesBackend::RunPart(size_t lane, const Part& part, absl::Span<const Job> jobs,
                             absl::Span<JobResult> results) {
  Backend& backend = *lanes_[lane].backend;
  if (part.jobs.size() == jobs.size()) {
    backend.RunEach(jobs, results);
  } else {
    std::vector<Job> own;
    own.reserve(part.jobs.size());
    for (const size_t i : part.jobs) own.push_back(jobs[i]);
    std::vector<JobResult> ran(own.size());
    backend.RunEach(own, absl::MakeSpan(ran));
    for (size_t k = 0; k < ran.size(); ++k) results[part.jobs[k]] = std::move(ran[k]);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_[lane].queued_bytes -= part.bytes;
}

absl::StatusOr<std::vector<int>> ChooseDevices(absl::Span<const int> wanted,
                                               absl::Span<const std::string> names) {
  std::vector<int> chosen(wanted.begin(), wanted.end());
  std::sort(chosen.begin(), chosen.end());
  if (const auto twice = std::adjacent_find(chosen.begin(), chosen.end()); twice != chosen.end()) {
    return Invalid("devices: ", *twice, " twice, each must be given once");
  }
  const int count = static_cast<int>(names.size());
  for (const int number : chosen) {
    if (number >= 0 && number < count) continue;
    std::string known;
    for (int i = 0; i < count; ++i) {
      known += StrCat(i == 0 ? "" : ", ", i, " (", names[static_cast<size_t>(i)], ")");
    }
    return Invalid("devices: ", number, " is none of this host's, which are ", known);
  }
  if (chosen.empty()) {
    chosen.resize(names.size());
    std::iota(chosen.begin(), chosen.end(), 0);
  }
  return chosen;
}

absl::StatusOr<std::unique_ptr<Backend>> OpenDevices(
    absl::Span<const int> wanted, absl::Span<const std::string> names, OpenDeviceBackend open,
    const std::function<void(const std::string&)>& left_out) {
  PHASOR_ASSIGN_OR_RETURN(const std::vector<int> chosen, ChooseDevices(wanted, names));
  const auto open_and_test = [&](int number) -> absl::StatusOr<std::unique_ptr<Backend>> {
    PHASOR_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, open(number));
    if (chosen.size() > 1) PHASOR_RETURN_IF_ERROR(TestOnDevice(*backend));
    return backend;
  };
  std::vector<std::unique_ptr<Backend>> opened;
  std::vector<std::pair<int, absl::Status>> failed;
  for (const int number : chosen) {
    absl::StatusOr<std::unique_ptr<Backend>> backend = open_and_test(number);
    if (backend.ok()) {
      opened.push_back(*std::move(backend));
    } else {
      failed.emplace_back(number, std::move(backend).status());
    }
  }
  if (!failed.empty() && (opened.empty() || !wanted.empty())) return failed[0].second;
  for (const auto& [number, error] : failed) {
    if (left_out) left_out(StrCat("device ", number, ": ", error.message()));
  }
  if (opened.size() == 1) return std::move(opened[0]);
  return std::make_unique<DevicesBackend>(std::move(opened));
}

}  // namespace phasor
