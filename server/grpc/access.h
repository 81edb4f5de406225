// SPDX-License-Identifier: Apache-2.0
// The gate that every call of ours passes: who calls, whether it may, and what it may hold.
// docs/adr/0015-one-gate-for-every-call.md says why it is here.
#ifndef PHASOR_SERVER_GRPC_ACCESS_H_
#define PHASOR_SERVER_GRPC_ACCESS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/base/admission.h"
#include "server/memory/region_store.h"
#include "server/security/file_stamp.h"
#include "server/security/rules.h"

namespace phasor::rpc {

// Calls refused since the start.
struct AccessStats {
  int64_t unauthenticated = 0;
  int64_t permission_denied = 0;
};

// Threads: any. Must outlive the calls.
class Access {
 public:
  // `services`: full names of all that the server offers, which a policy may name.
  // INVALID_ARGUMENT: a file cannot be read or is wrong.
  static absl::StatusOr<std::unique_ptr<Access>> Load(const security::RuleFiles& files,
                                                      absl::Span<const std::string> services);

  // Reads the files again; if any is wrong, all stay as they were. Errors as Load's.
  absl::Status Reload();
  // Whether a file has changed since it was read last.
  bool Changed() const;

  AccessStats stats() const;

 private:
  friend absl::Status Refusal(grpc::CallbackServerContext* context);

  Access(security::RuleFiles files, std::vector<std::string> methods);
  std::vector<security::FileStamp> Stamps() const;
  std::shared_ptr<const security::Rules> rules() const;
  void Count(const absl::Status& refusal);

  const security::RuleFiles files_;
  const std::vector<std::string> methods_;
  std::atomic<int64_t> unauthenticated_ = 0;
  std::atomic<int64_t> permission_denied_ = 0;
  mutable absl::Mutex mu_;
  std::shared_ptr<const security::Rules> rules_ ABSL_GUARDED_BY(mu_);
  std::vector<security::FileStamp> stamps_ ABSL_GUARDED_BY(mu_);
};

// Why a call must be refused, or OK: UNAVAILABLE while draining or beyond the calls of its
// connection, RESOURCE_EXHAUSTED for large metadata, UNAUTHENTICATED, PERMISSION_DENIED. Every
// handler asks this first, but those of grpc.health.v1, which anybody may call. OK for contexts
// that no CallCounter made, which only tests have.
absl::Status Refusal(grpc::CallbackServerContext* context);

// Who calls, once Refusal was OK: "token:NAME", "san:NAME", "unix"; empty: nobody has asked.
std::string IdentityOf(const grpc::CallbackServerContext& context);
// The same as owner of regions of shared memory.
memory::RegionCaller RegionCallerOf(const grpc::CallbackServerContext& context);

// What a caller may have in flight. Copies share it; outlives the context. Threads: any.
class CallerQuota {
 public:
  CallerQuota() = default;  // without bounds
  explicit CallerQuota(const grpc::CallbackServerContext& context);

  // `bytes` more, until the permit goes. UNAVAILABLE: too much at the moment; RESOURCE_EXHAUSTED:
  // more than the caller may ever have.
  absl::StatusOr<Permit> Take(int64_t bytes) const;

 private:
  std::shared_ptr<security::Quota> quota_;  // nullptr: without bounds
  std::string identity_;
};

// Holds `permit` until the call's answer has been sent. In a context that no CallCounter made there
// is no place for one: it is let go at once.
void KeepUntilSent(grpc::CallbackServerContext* context, Permit permit);

// Tells Refusal which method a call is for; gRPC knows, and shows it to interceptors only. Makes
// no interceptor.
class MethodNames final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_ACCESS_H_
