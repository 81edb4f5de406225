// SPDX-License-Identifier: Apache-2.0
// Keeps a number of asynchronous calls in flight on one gRPC channel.
#include "bench/server/raw_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"

namespace phasor::bench {
namespace {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // its own connection
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

// One call in flight.
struct RawClient::Slot {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
  grpc::ByteBuffer response;
  grpc::Status status;

  void Start(RawClient& client, const std::string& method, const grpc::ByteBuffer& request) {
    context = std::make_unique<grpc::ClientContext>();
    context->set_wait_for_ready(true);
    response.Clear();
    reader = client.stub_.PrepareUnaryCall(context.get(), method, request, &client.queue_);
    reader->StartCall();
    reader->Finish(&response, &status, this);
  }
};

RawClient::RawClient(const std::string& address) : stub_(MakeChannel(address)) {}

RawClient::~RawClient() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

grpc::ByteBuffer RawClient::Run(const std::string& method, const grpc::ByteBuffer& request,
                                int calls, int in_flight) {
  std::vector<Slot> slots(static_cast<size_t>(std::min(calls, in_flight)));
  int started = 0;
  for (Slot& slot : slots) {
    slot.Start(*this, method, request);
    ++started;
  }
  Slot* last = nullptr;
  for (int finished = 0; finished < calls; ++finished) {
    last = static_cast<Slot*>(NextTag(method));
    if (!last->status.ok()) Die(absl::StrCat(method, ": ", last->status.error_message()));
    if (started == calls) continue;
    last->Start(*this, method, request);
    ++started;
  }
  return std::move(last->response);
}

grpc::ByteBuffer RawClient::RunStream(const std::string& method, const grpc::ByteBuffer& message,
                                      int messages, int in_flight) {
  enum Tag : intptr_t { kOther = 1, kRead, kWrite };
  const auto tag = [](Tag t) { return reinterpret_cast<void*>(t); };
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const auto stream = stub_.PrepareCall(&context, method, &queue_);
  stream->StartCall(tag(kOther));
  NextTag(method);
  grpc::ByteBuffer answer;
  stream->Read(&answer, tag(kRead));
  int written = 0, read = 0;
  bool writing = false;
  while (read < messages) {
    const int may_write = std::min(messages, read + in_flight);
    if (!writing && written < may_write) {
      grpc::WriteOptions options;
      if (++written < may_write) options.set_buffer_hint();  // the next one follows at once
      stream->Write(message, options, tag(kWrite));
      writing = true;
    }
    if (NextTag(method) == tag(kWrite)) {
      writing = false;
    } else if (++read < messages) {
      stream->Read(&answer, tag(kRead));
    }
  }
  // The last answer may come before gRPC says that the last message was sent.
  if (writing) NextTag(method);
  grpc::Status status;
  stream->WritesDone(tag(kOther));
  NextTag(method);
  stream->Finish(&status, tag(kOther));
  NextTag(method);
  if (!status.ok()) Die(absl::StrCat(method, ": ", status.error_message()));
  return answer;
}

void* RawClient::NextTag(const std::string& method) {
  void* tag = nullptr;
  bool ok = false;
  if (!queue_.Next(&tag, &ok) || !ok) Die(absl::StrCat(method, ": an operation failed"));
  return tag;
}

}  // namespace phasor::bench
