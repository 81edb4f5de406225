// SPDX-License-Identifier: Apache-2.0
// Receives uploads of tables, and stores, lists and deletes tables.
#include "server/api/table_service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"
#include "proto/grpc_status.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/finish_call.h"
#include "server/grpc/idle_timer.h"
#include "server/grpc/open_calls.h"

namespace phasor::rpc {
namespace {

constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishCall(context, reactor, status);
  return reactor;
}

// Callers without an identity are known by their host.
std::string UploaderOf(const grpc::CallbackServerContext& context) {
  std::string identity = RegionCallerOf(context).identity;
  return identity.empty() ? absl::StrCat(ClientOf(context)) : identity;
}

// One upload. Owns itself until OnDone. Threads: timer and reads may run at once; they lock `mu_`.
class UploadReactor final : public grpc::ServerReadReactor<v1::CreateTableRequest>,
                            public std::enable_shared_from_this<UploadReactor> {
 public:
  UploadReactor(tables::TableStore* store, TaskThread* files, grpc::CallbackServerContext* context,
                v1::CreateTableResponse* response, absl::Duration idle_timeout)
      : store_(*store),
        files_(*files),
        context_(context),
        response_(response),
        idle_timeout_(idle_timeout) {}

  void Begin() {
    self_ = shared_from_this();
    timer_.emplace(idle_timeout_, [weak = weak_from_this()] {
      if (const auto upload = weak.lock()) upload->EndIdle();
      return true;
    });
    absl::MutexLock lock(&mu_);
    if (const absl::Status refusal = Refusal(context_); !refusal.ok()) return End(refusal);
    StartRead(&request_);
  }

 private:
  void OnReadDone(bool ok) override {
    timer_->Touch();
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    if (!ok) return Commit();
    CallCounter::NoteReceived(context_, static_cast<int64_t>(request_.ByteSizeLong()));
    if (absl::Status status = Take(); !status.ok()) return End(status);
    StartRead(&request_);
  }
  void OnDone() override {
    timer_->Stop();
    std::shared_ptr<UploadReactor>(std::move(self_)).reset();
  }

  void EndIdle() {
    absl::MutexLock lock(&mu_);
    if (ended_) return;
    End(absl::DeadlineExceededError(
        absl::StrCat("table: nothing received for ", absl::FormatDuration(idle_timeout_),
                     "; send earlier, or ask for a larger --stream-idle-timeout")));
  }

  absl::Status Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (upload_ == nullptr) {
      PHASOR_RETURN_IF_ERROR(Announce());
    } else if (request_.has_table()) {
      return Invalid("table: set again; must be in the first message only");
    } else if (std::all_of(request_.raw().begin(), request_.raw().end(),
                           [](const std::string& bytes) { return bytes.empty(); })) {
      return Invalid("raw: no bytes; every message after the first must have some");
    }
    for (const std::string& bytes : request_.raw()) {
      PHASOR_RETURN_IF_ERROR(
          upload_->Append({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}));
      received_ += static_cast<int64_t>(bytes.size());
    }
    return CheckPace();
  }

  // An upload that never ends would keep its place among the few uploads.
  absl::Status CheckPace() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Duration allowed = idle_timeout_ + received_ * kAnswerTimePerMiB / (1 << 20);
    if (idle_timeout_ == absl::ZeroDuration() || SteadyNow() - began_ <= allowed) {
      return absl::OkStatus();
    }
    return absl::DeadlineExceededError(absl::StrCat(
        "table: ", received_, " bytes not received within ", absl::FormatDuration(idle_timeout_),
        " (and ", absl::FormatDuration(kAnswerTimePerMiB),
        " for each MiB); send faster, or ask for a larger --stream-idle-timeout"));
  }

  absl::Status Announce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (!request_.has_table()) return Invalid("table: not set; must be in the first message");
    const v1::Table& table = request_.table();
    PHASOR_ASSIGN_OR_RETURN(const TensorDesc tensor,
                            TensorDescFromWire(table.tensor(), "table.tensor"));
    PHASOR_ASSIGN_OR_RETURN(
        upload_, store_.Begin(table.name(), tensor, table.sha256(), UploaderOf(*context_)));
    return absl::OkStatus();
  }

  // The stream of messages has ended. If it was cut off, bytes are missing and the store refuses
  // it.
  void Commit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (context_->IsCancelled()) return End(absl::CancelledError("table: cancelled by the caller"));
    if (upload_ == nullptr) return End(Invalid("table: no message received; send the table first"));
    ended_ = true;  // from here on, only the task below ends the call
    files_.Post(ClientOf(*context_), [this, self = self_, upload = std::move(upload_)]() mutable {
      auto stored = store_.Commit(std::move(upload));
      if (stored.ok()) *response_->mutable_table() = ToWire(**stored);
      absl::MutexLock lock(&mu_);
      End(stored.status());
    });
  }

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ended_ = true;
    upload_.reset();
    AddPushback(context_, status);
    Finish(ToGrpcStatus(status));
  }

  tables::TableStore& store_;
  TaskThread& files_;
  grpc::CallbackServerContext* const context_;
  v1::CreateTableResponse* const response_;
  const absl::Duration idle_timeout_;
  const absl::Time began_ = SteadyNow();
  std::shared_ptr<UploadReactor> self_;
  std::optional<IdleTimer> timer_;
  v1::CreateTableRequest request_;
  absl::Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  int64_t received_ ABSL_GUARDED_BY(mu_) = 0;  // bytes of the table
  std::unique_ptr<tables::TableUpload> upload_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

grpc::ServerReadReactor<v1::CreateTableRequest>* TableServiceImpl::CreateTable(
    grpc::CallbackServerContext* context, v1::CreateTableResponse* response) {
  const auto upload =
      std::make_shared<UploadReactor>(&store_, &files_, context, response, idle_timeout_);
  upload->Begin();
  return upload.get();
}

grpc::ServerUnaryReactor* TableServiceImpl::GetTable(grpc::CallbackServerContext* context,
                                                     const v1::GetTableRequest* request,
                                                     v1::GetTableResponse* response) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  if (absl::Status status = CheckTableName(request->name(), "name"); !status.ok()) {
    return Answer(context, status);
  }
  const auto answer = [=](const TableSource& tables) {
    const auto table = tables.Find(request->name(), "name");
    if (table.ok()) *response->mutable_table() = ToWire(**table);
    return table.status();
  };
  const tables::LoadedTables loaded(&store_);
  const absl::Status status = answer(loaded);
  if (!loaded.lacks_a_table()) return Answer(context, status);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  files_.Post(ClientOf(*context),
              [this, context, reactor, answer] { FinishCall(context, reactor, answer(store_)); });
  return reactor;
}

grpc::ServerUnaryReactor* TableServiceImpl::ListTables(grpc::CallbackServerContext* context,
                                                       const v1::ListTablesRequest* request,
                                                       v1::ListTablesResponse* response) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  if (request->page_size() < 0 || request->page_size() > kMaxPageSize) {
    return Answer(context, Invalid("page_size: ", request->page_size(), "; must be in [0, 1000]"));
  }
  if (!request->page_token().empty()) {
    const absl::Status status = CheckTableName(request->page_token(), "page_token");
    if (!status.ok()) return Answer(context, status);
  }
  const int size = request->page_size() == 0 ? kDefaultPageSize : request->page_size();
  const auto tables = store_.List(request->page_token(), size + 1);
  for (const auto& table : tables) {
    if (response->tables_size() == size) {
      response->set_next_page_token(response->tables(size - 1).name());
      break;
    }
    *response->add_tables() = ToWire(*table);
  }
  response->mutable_storage()->set_directory(store_.directory());
  response->mutable_storage()->set_rescan_interval_ms(
      absl::ToInt64Milliseconds(store_.rescan_interval()));
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TableServiceImpl::DeleteTable(grpc::CallbackServerContext* context,
                                                        const v1::DeleteTableRequest* request,
                                                        v1::DeleteTableResponse*) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  files_.Post(ClientOf(*context), [this, context, reactor, name = request->name()] {
    FinishCall(context, reactor, store_.Delete(name));
  });
  return reactor;
}

}  // namespace phasor::rpc
