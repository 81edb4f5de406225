// SPDX-License-Identifier: Apache-2.0
// The gate for every call of our services: who calls, whether it is allowed, and how much it may
// use. docs/adr/0015-one-gate-for-every-call.md says why it is here.
#ifndef PHASOR_SERVER_GRPC_ACCESS_H_
#define PHASOR_SERVER_GRPC_ACCESS_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/base/admission.h"
#include "server/base/file_stamp.h"
#include "server/memory/region_store.h"
#include "server/security/rules.h"

namespace phasor::rpc {

// Calls refused since the start.
struct AccessStats {
  int64_t unauthenticated = 0;
  int64_t permission_denied = 0;
};

// The rules of a server. Must outlive its calls. Threads: any.
class Access {
 public:
  // `services` are the full names of all services of the server, which a policy may name.
  // INVALID_ARGUMENT: a file cannot be read or is invalid.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const security::RuleFiles& files,
                                                      absl::Span<const std::string> services);

  // Reads the files again. If one is invalid, keeps all as they were. Errors as in Load.
  absl::Status Reload();
  // Whether a file has changed since it was last read.
  bool Changed() const;

  AccessStats stats() const;

 private:
  friend absl::Status Refusal(grpc::CallbackServerContext* context);

  Access(security::RuleFiles files, std::vector<std::string> methods);
  std::vector<FileStamp> Stamps() const;
  std::shared_ptr<const security::Rules> rules() const;
  void Count(const absl::Status& refusal);

  const security::RuleFiles files_;
  const std::vector<std::string> methods_;
  std::atomic<int64_t> unauthenticated_ = 0;
  std::atomic<int64_t> permission_denied_ = 0;
  mutable absl::Mutex mu_;
  std::shared_ptr<const security::Rules> rules_ ABSL_GUARDED_BY(mu_);
  std::vector<FileStamp> stamps_ ABSL_GUARDED_BY(mu_);
};

// The error with which a call must be refused, or OK. UNAVAILABLE: draining, or too many calls on
// the connection. RESOURCE_EXHAUSTED: too much metadata. UNAUTHENTICATED, PERMISSION_DENIED: by the
// rules. Every handler must call this first; only those of grpc.health.v1 do not, because everyone
// may call them. OK for contexts that no CallCounter made, which occur only in tests.
absl::Status Refusal(grpc::CallbackServerContext* context);

// The caller as an owner of shared-memory regions, after Refusal returned OK. Its identity is
// "token:NAME", "san:NAME" or "unix"; empty if the server asks for none.
memory::RegionCaller RegionCallerOf(const grpc::CallbackServerContext& context);

// The bytes that a caller may have in flight. Copies share the quota and may outlive the context.
// Threads: any.
class CallerQuota {
 public:
  CallerQuota() = default;  // no limit
  explicit CallerQuota(const grpc::CallbackServerContext& context);

  // Reserves `bytes` until the permit is destroyed. UNAVAILABLE: too much at the moment.
  // RESOURCE_EXHAUSTED: more than the caller may ever have.
  absl::StatusOr<Permit> Take(int64_t bytes) const;

 private:
  std::shared_ptr<security::Quota> quota_;  // nullptr: no limit
  std::string identity_;
};

// Holds `quota`, and `budget` if the engine does not hold it, until the call's answer is sent. A
// context that no CallCounter made has no place for them; the permits then end at once.
void KeepUntilSent(grpc::CallbackServerContext* context, Permit quota, Permit budget = {});

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_ACCESS_H_
