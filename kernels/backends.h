// SPDX-License-Identifier: Apache-2.0
// Makes a backend by its name. Only backends.cc knows all backends.
#ifndef PHASOR_KERNELS_BACKENDS_H_
#define PHASOR_KERNELS_BACKENDS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend/backend.h"

namespace phasor {

// How to make a backend.
struct BackendOptions {
  // One of
  // - "cpu";
  // - "cuda": the CPU does only what is too small for the device, not supported or failed there;
  // - "auto": if there is a device, "cuda" for tensors in its memory, and the CPU for all others,
  //   because the way to the device takes longer than the CPU does; else "cpu";
  // - "reference": the scalar definition, slow, for tests.
  std::string name = "auto";
  // Threads that a job may use, including the caller's. 0: one per core. 1: no threads are started.
  int threads = 0;
  // Whether a lost device is tried again in a fresh context. Do not set it if other code in this
  // process uses the device: their context ends too.
  bool retry_device = false;
  // The numbers of the devices to use, as the vendor's runtime counts them. Empty: all that can be
  // used. "auto" too needs those that are named; "cpu" and "reference"
  // use none.
  std::vector<int> devices = {};
  // Is told why a device is left out, if `devices` is empty. An empty function: nobody is.
  std::function<void(const std::string&)> left_out = nullptr;
};

// NOT_FOUND: unknown name. FAILED_PRECONDITION: this build or host has no such backend.
// INVALID_ARGUMENT: there is no such device, or one is named twice.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKENDS_H_
