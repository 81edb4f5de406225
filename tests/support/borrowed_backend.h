// SPDX-License-Identifier: Apache-2.0
// A backend that forwards to another one and never wants calls to run together.
#ifndef PHASOR_TESTS_SUPPORT_BORROWED_BACKEND_H_
#define PHASOR_TESTS_SUPPORT_BORROWED_BACKEND_H_

#include <string>
#include <string_view>

#include "kernels/backend/backend.h"

namespace phasor::testing {

// Passes every run on to `backend`, which must outlive it. Threads: as the other's.
class BorrowedBackend : public Backend {
 public:
  explicit BorrowedBackend(Backend* backend) : backend_(*backend) {}
  std::string_view name() const override { return backend_.name(); }
  std::string target() const override { return backend_.target(); }
  int threads() const override { return backend_.threads(); }
  absl::Status Run(absl::Span<const Job> jobs) override { return backend_.Run(jobs); }
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override {
    backend_.RunEach(jobs, results);
  }
  DeviceList devices() override { return backend_.devices(); }

 private:
  Backend& backend_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_BORROWED_BACKEND_H_
