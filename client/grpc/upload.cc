// SPDX-License-Identifier: Apache-2.0
// Uploads a table to a server as a stream of CreateTable messages.
#include "client/grpc/upload.h"

#include <grpcpp/client_context.h>

#include <algorithm>

#include "client/common/calls.h"
#include "client/grpc/forked.h"
#include "client/grpc/grpc_channel.h"
#include "client/grpc/responses.h"
#include "kernels/base/sha256.h"
#include "kernels/base/status_macros.h"
#include "phasor/v1/table_service.grpc.pb.h"
#include "proto/convert.h"
#include "proto/grpc_status.h"

namespace phasor::client_internal {

absl::StatusOr<TableInfo> UploadTable(const std::shared_ptr<grpc::Channel>& channel,
                                      const std::string& name, const TensorView& values,
                                      const CallContext& context) {
  PHASOR_RETURN_IF_ERROR(CheckNotForked());
  PHASOR_RETURN_IF_ERROR(CheckTableValues(values, "table"));
  PHASOR_RETURN_IF_ERROR(CheckMetadata(context.metadata));
  const int64_t bytes = ElementCount(values.desc) * SizeOf(values.desc.dtype);
  const auto stub = v1::TableService::NewStub(channel);
  const auto client_context = std::make_shared<grpc::ClientContext>();
  SetUp(context, client_context.get());
  CancelToken::Registration cancel;
  if (context.cancel.has_value()) {
    cancel = context.cancel->OnCancel([client_context] { client_context->TryCancel(); });
  }

  v1::CreateTableResponse response;
  const auto writer = stub->CreateTable(client_context.get(), &response);
  v1::CreateTableRequest request;
  request.mutable_table()->set_name(name);
  *request.mutable_table()->mutable_tensor() =
      ToWire(TensorDesc{values.desc.dtype, values.desc.shape, {}});
  request.mutable_table()->set_sha256(Sha256Hex({values.data, static_cast<size_t>(bytes)}));
  bool open = writer->Write(request);
  for (int64_t sent = 0; open && sent < bytes; sent += kUploadPieceBytes) {
    request.Clear();
    request.add_raw(values.data + sent,
                    static_cast<size_t>(std::min(kUploadPieceBytes, bytes - sent)));
    open = writer->Write(request);
  }
  if (open) writer->WritesDone();
  PHASOR_RETURN_IF_ERROR(FromGrpcStatus(writer->Finish()));
  return TableFromWire(response.table());
}

}  // namespace phasor::client_internal
