// SPDX-License-Identifier: Apache-2.0
// Small valid requests of the protocol, which tests then break, and the bytes of their tensors.
#ifndef PHASOR_TESTS_SERVER_OIP_REQUESTS_H_
#define PHASOR_TESTS_SERVER_OIP_REQUESTS_H_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "inference/grpc_service.pb.h"
#include "server/engine/call.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

// The models of a server without encoders.
inline const ModelSet& PresetSet() {
  static const auto* const models = new ModelSet();
  return *models;
}
inline const Model& PresetModel(std::string_view name) { return *PresetSet().Find(name); }

template <typename T>
std::string BytesOfValues(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Adds an input without its bytes.
inline inference::ModelInferRequest::InferInputTensor* AddInput(
    const std::string& name, const std::string& datatype, std::initializer_list<int64_t> shape,
    inference::ModelInferRequest* request) {
  auto* input = request->add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (const int64_t extent : shape) input->add_shape(extent);
  return input;
}

inline void SetRegion(const std::string& region, int64_t bytes, int64_t offset,
                      google::protobuf::Map<std::string, inference::InferParameter>* parameters) {
  (*parameters)["shared_memory_region"].set_string_param(region);
  (*parameters)["shared_memory_byte_size"].set_int64_param(bytes);
  if (offset != 0) (*parameters)["shared_memory_offset"].set_int64_param(offset);
}

// "transformer", 8 columns, at these positions.
inline inference::ModelInferRequest EncodeAt(const std::vector<int64_t>& positions) {
  inference::ModelInferRequest request;
  request.set_model_name("transformer");
  request.set_id("r1");
  (*request.mutable_parameters())["dim"].set_int64_param(8);
  AddInput("POSITIONS", "INT64", {static_cast<int64_t>(positions.size())}, &request);
  request.add_raw_input_contents(BytesOfValues(positions));
  return request;
}

// Two heads of a query and one of a key, 8 lanes, all ones, one token at `position`.
inline inference::ModelInferRequest RotateAt(int64_t position) {
  inference::ModelInferRequest request;
  request.set_model_name("rope-half-split");
  AddInput("POSITIONS", "INT64", {1}, &request);
  AddInput("Q", "FP32", {1, 2, 8}, &request);
  AddInput("K", "FP32", {1, 1, 8}, &request);
  request.add_raw_input_contents(BytesOfValues<int64_t>({position}));
  request.add_raw_input_contents(BytesOfValues(std::vector<float>(16, 1.0F)));
  request.add_raw_input_contents(BytesOfValues(std::vector<float>(8, 1.0F)));
  return request;
}

// The raw entries of `request` as the walker gives them; borrows it.
inline std::vector<PieceList> RawOf(const inference::ModelInferRequest& request) {
  std::vector<PieceList> raw;
  for (const std::string& entry : request.raw_input_contents()) {
    raw.push_back({{reinterpret_cast<const std::byte*>(entry.data()), entry.size()}});
  }
  return raw;
}

}  // namespace phasor::oip

#endif  // PHASOR_TESTS_SERVER_OIP_REQUESTS_H_
