// SPDX-License-Identifier: Apache-2.0
// Batches spans and exports them over OTLP/gRPC. A batch is repeated within its time limit when the
// collector may take it later, as the protocol says; then it is dropped.
#include "server/trace/span_exporter.h"

#include <algorithm>
#include <iterator>

#include "kernels/base/steady_time.h"
#include "server/base/log.h"

namespace phasor::trace {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(200);
constexpr absl::Duration kLongestBackoff = absl::Seconds(5);
constexpr absl::Duration kStopTime = absl::Seconds(2);

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TraceOptions& options) {
  if (!options.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.authorities;
  return grpc::SslCredentials(ssl);
}

// Whether the collector may take the same spans later.
bool MayPass(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

}  // namespace

SpanExporter::SpanExporter(const TraceOptions& options, const std::string& version)
    : options_(options),
      stub_(TraceService::NewStub(grpc::CreateChannel(options.endpoint, CredentialsOf(options)))) {
  auto* const resource = frame_.add_resource_spans();
  for (const auto& [key, value] : options.resource) {
    auto* const attribute = resource->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(value);
  }
  auto* const scope = resource->add_scope_spans()->mutable_scope();
  scope->set_name("phasor");
  scope->set_version(version);
  thread_ = std::thread([this] { Work(); });
}

SpanExporter::~SpanExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    last_deadline_ = SteadyNow() + kStopTime;
    if (sending_ != nullptr) sending_->TryCancel();
    changed_.notify_all();
  }
  thread_.join();
}

void SpanExporter::Add(std::vector<Span> spans) {
  const auto count = static_cast<int64_t>(spans.size());
  std::lock_guard lock(mutex_);
  const auto queued = static_cast<int64_t>(queue_.size());
  if (stopping_ || queued + count > options_.max_queue_spans) {
    dropped_.fetch_add(count);
    return;
  }
  std::move(spans.begin(), spans.end(), std::back_inserter(queue_));
  if (queued < options_.max_batch_spans && queued + count >= options_.max_batch_spans) {
    changed_.notify_all();
  }
}

void SpanExporter::Work() {
  while (true) {
    std::vector<Span> batch = NextBatch();
    if (batch.empty()) return;
    Export(std::move(batch));
  }
}

std::vector<Span> SpanExporter::NextBatch() {
  std::unique_lock lock(mutex_);
  const auto full = [this] {
    return static_cast<int64_t>(queue_.size()) >= options_.max_batch_spans;
  };
  do {
    changed_.wait_for(lock, absl::ToChronoNanoseconds(options_.schedule_delay),
                      [&] { return stopping_ || full(); });
  } while (!stopping_ && queue_.empty());
  const auto count =
      std::min<int64_t>(static_cast<int64_t>(queue_.size()), options_.max_batch_spans);
  std::vector<Span> batch(std::make_move_iterator(queue_.begin()),
                          std::make_move_iterator(queue_.begin() + count));
  queue_.erase(queue_.begin(), queue_.begin() + count);
  return batch;
}

void SpanExporter::Export(std::vector<Span> spans) {
  const auto count = static_cast<int64_t>(spans.size());
  ExportTraceServiceRequest request = frame_;
  auto* const sent = request.mutable_resource_spans(0)->mutable_scope_spans(0)->mutable_spans();
  for (Span& span : spans) *sent->Add() = std::move(span);

  const absl::Time deadline = SteadyNow() + options_.export_timeout;
  int64_t rejected = 0;
  grpc::Status status = Send(request, deadline, &rejected);
  for (absl::Duration backoff = kFirstBackoff; !status.ok() && MayPass(status);
       backoff = std::min(2 * backoff, kLongestBackoff)) {
    if (SteadyNow() + backoff >= deadline || !Wait(backoff)) break;
    status = Send(request, deadline, &rejected);
  }
  Note(status);
  if (!status.ok()) rejected = count;
  rejected = std::clamp<int64_t>(rejected, 0, count);
  exported_.fetch_add(count - rejected);
  dropped_.fetch_add(rejected);
}

grpc::Status SpanExporter::Send(const ExportTraceServiceRequest& request, absl::Time deadline,
                                int64_t* rejected) {
  grpc::ClientContext context;
  for (const auto& [key, value] : options_.headers) context.AddMetadata(key, value);
  {
    std::lock_guard lock(mutex_);
    context.set_deadline(WallTimeAfter(std::min(deadline, last_deadline_) - SteadyNow()));
    sending_ = &context;
  }
  opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse response;
  const grpc::Status status = stub_->Export(&context, request, &response);
  std::lock_guard lock(mutex_);
  sending_ = nullptr;
  *rejected = response.partial_success().rejected_spans();
  return status;
}

bool SpanExporter::Wait(absl::Duration time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, absl::ToChronoNanoseconds(time), [this] { return stopping_; });
}

// One log line when exports begin to fail, and one when they work again.
void SpanExporter::Note(const grpc::Status& status) {
  if (status.ok() == !failing_) return;
  failing_ = !status.ok();
  Log(failing_ ? LogLevel::kWarn : LogLevel::kInfo,
      failing_ ? "spans not exported" : "spans exported again",
      {{"endpoint", options_.endpoint}, {"error", status.error_message()}});
}

}  // namespace phasor::trace
