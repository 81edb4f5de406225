// SPDX-License-Identifier: Apache-2.0
// Fills in the header of responses and joins it with the bytes of the outputs.
#include "server/oip/infer_response.h"

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "proto/grpc_status.h"
#include "proto/raw_message.h"
#include "server/grpc/message_writer.h"
#include "server/oip/datatype.h"

namespace phasor::oip {
namespace {

constexpr uint32_t kRawOutputField = 6;      // ModelInferResponse.raw_output_contents
constexpr uint32_t kInferResponseField = 2;  // ModelStreamInferResponse.infer_response

void DescribeRange(const OutputTensor& output,
                   inference::ModelInferResponse::InferOutputTensor* out) {
  auto& parameters = *out->mutable_parameters();
  parameters["shared_memory_region"].set_string_param(output.range.name);
  parameters["shared_memory_byte_size"].set_int64_param(output.bytes);
  if (output.range.offset != 0) {
    parameters["shared_memory_offset"].set_int64_param(output.range.offset);
  }
}

inference::ModelInferResponse HeaderOf(const PreparedInfer& prepared, bool stream) {
  inference::ModelInferResponse header;
  header.set_model_name(prepared.model->name);
  header.set_model_version(kModelVersion);
  header.set_id(prepared.id);
  if (stream) (*header.mutable_parameters())["triton_final_response"].set_bool_param(true);
  for (const OutputTensor& output : prepared.outputs) {
    auto* out = header.add_outputs();
    out->set_name(output.name);
    out->set_datatype(std::string(DatatypeOf(output.dtype)));
    for (const int64_t extent : output.shape) out->add_shape(extent);
    if (!output.range.in_message()) DescribeRange(output, out);
  }
  return header;
}

}  // namespace

grpc::ByteBuffer MakeInferResponse(const PreparedInfer& prepared, const engine::Result& result,
                                   bool stream) {
  const std::string header = HeaderOf(prepared, stream).SerializeAsString();
  std::vector<engine::OutputRange> ranges;
  auto bytes = static_cast<int64_t>(header.size());
  for (const OutputTensor& output : prepared.outputs) {
    const bool in_message = output.range.in_message();
    ranges.push_back(in_message ? result.items[0].outputs[output.index] : engine::OutputRange{});
    bytes += FieldBytes(kRawOutputField, static_cast<size_t>(ranges.back().bytes));
  }
  std::string text;
  if (stream) AppendFieldPrefix(kInferResponseField, static_cast<size_t>(bytes), &text);
  text += header;
  return rpc::WriteMessage(std::move(text), kRawOutputField, ranges, result.buffer);
}

grpc::ByteBuffer MakeStreamError(const absl::Status& status, const std::string& id) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(BoundedStatusMessage(status.message()));
  response.mutable_infer_response()->set_id(id);
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace phasor::oip
