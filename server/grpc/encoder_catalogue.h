// SPDX-License-Identifier: Apache-2.0
// The named encoders of a running server. A reload replaces them.
#ifndef PHASOR_SERVER_GRPC_ENCODER_CATALOGUE_H_
#define PHASOR_SERVER_GRPC_ENCODER_CATALOGUE_H_

#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/spec/encoder_set.h"

namespace phasor::rpc {

// The current set of encoders. A set that was returned stays valid after Replace. Threads: any.
class EncoderCatalogue {
 public:
  void Replace(EncoderSet set) {
    auto next = std::make_shared<const EncoderSet>(std::move(set));
    absl::MutexLock lock(&mu_);
    set_ = std::move(next);
  }

  std::shared_ptr<const EncoderSet> Get() const {
    absl::MutexLock lock(&mu_);
    return set_;
  }

  // Calls EncoderSet::Apply. Takes no lock if the spec names no encoder.
  absl::StatusOr<Spec> Apply(const Spec& user, std::string_view path) const {
    return user.encoder.empty() ? user : Get()->Apply(user, path);
  }

 private:
  mutable absl::Mutex mu_;
  std::shared_ptr<const EncoderSet> set_ ABSL_GUARDED_BY(mu_) =
      std::make_shared<const EncoderSet>();
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_ENCODER_CATALOGUE_H_
