// SPDX-License-Identifier: Apache-2.0
// Tests that phasor.v1 and this protocol give the same bytes for the same tensors: every preset and
// every type; in the message, in shared memory, in place and on a stream.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "kernels/spec/spec_json.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"
#include "server/oip/datatype.h"
#include "tests/server/oip/requests.h"
#include "tests/support/complete_preset.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"
#include "tests/support/tensors.h"

namespace phasor::oip {
namespace {

using InferStub = inference::GRPCInferenceService::Stub;
using OwnStub = v1::PositionEmbeddingService::Stub;
using Blobs = std::vector<std::string>;  // raw bytes of one tensor after another

constexpr int64_t kTokens = 3;
constexpr Dtype kTypes[] = {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16};

// One request in both languages.
struct Twins {
  inference::ModelInferRequest infer;
  std::function<grpc::Status(OwnStub&, grpc::ClientContext*, Blobs*)> own;
};

template <typename Response>
Blobs RawBlobs(const Response& response) {
  return {response.raw().begin(), response.raw().end()};
}

// 1, 2, 3, ... as integers, numbers from 1 to 1.5 as others.
std::string Elements(Dtype dtype, int64_t count) {
  const int64_t size = SizeOf(dtype);
  std::string bytes(count * size, '\0');
  for (int64_t i = 0; i < count; ++i) {
    const int64_t integer = i + 1;
    const double real = 1 + 0.5 * static_cast<double>(i) / static_cast<double>(count);
    char* const element = bytes.data() + i * size;
    if (dtype == Dtype::kInt32 || dtype == Dtype::kInt64) {
      std::memcpy(element, &integer, size);  // little-endian
    } else {
      testing::SetElement(dtype, real, reinterpret_cast<std::byte*>(element));
    }
  }
  return bytes;
}

// Adds a tensor of numbers to both; `shape` is that of this protocol.
TensorDesc AddTensor(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape,
                     inference::ModelInferRequest* request) {
  auto* const input = AddInput(name, std::string(DatatypeOf(dtype)), {}, request);
  int64_t count = 1;
  for (const int64_t extent : shape) {
    input->add_shape(extent);
    count *= extent;
  }
  request->add_raw_input_contents(Elements(dtype, count));
  return {dtype, shape, {}};
}

Positions AddPositions(const std::string& name, Dtype dtype, int64_t axes,
                       inference::ModelInferRequest* request) {
  std::vector<int64_t> shape = {kTokens};
  if (axes > 1) shape.push_back(axes);
  AddTensor(name, dtype, shape, request);
  return PositionTensor{dtype, shape};
}

// The type of positions that goes with a type of tensors, so that all are seen.
Dtype PositionsWith(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return Dtype::kInt64;
    case Dtype::kFloat32:
      return Dtype::kInt32;
    case Dtype::kFloat16:
      return Dtype::kFloat64;
    default:
      return Dtype::kFloat32;
  }
}

void SetParameters(const Spec& spec, inference::ModelInferRequest* request) {
  const Json fields = ToJson(spec);
  for (const auto& [key, value] : fields.items()) {
    if (key == "preset") continue;
    auto& parameter = (*request->mutable_parameters())[key];
    if (value.is_number_integer()) {
      parameter.set_int64_param(value.get<int64_t>());
    } else {
      parameter.set_string_param(value.dump());
    }
  }
}

template <typename Item, typename Request, typename Response>
Twins Join(inference::ModelInferRequest infer, const Item& item,
           grpc::Status (OwnStub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  Request request;
  *request.mutable_item() = ToWire(item);
  for (const std::string& raw : infer.raw_input_contents()) request.add_raw(raw);
  const auto own = [request, method](OwnStub& stub, grpc::ClientContext* context, Blobs* out) {
    Response response;
    const grpc::Status status = (stub.*method)(context, request, &response);
    *out = RawBlobs(response);
    return status;
  };
  return {std::move(infer), own};
}

Twins EncodingTwins(const Preset& preset, const ResolvedSpec& resolved, Dtype dtype) {
  EncodeRequest item;
  inference::ModelInferRequest infer;
  infer.set_model_name(preset.name);
  item.spec = testing::Complete(preset);
  SetParameters(item.spec, &infer);
  item.positions = AddPositions("POSITIONS", PositionsWith(dtype), resolved.axes, &infer);
  item.output_dtype = dtype;
  if (dtype == Dtype::kFloat32) {  // the others with something to add
    (*infer.mutable_parameters())["output_dtype"].set_string_param("FP32");
  } else {
    item.add_to = AddTensor("EMBEDDINGS", dtype, {kTokens, resolved.dim}, &infer);
    item.embedding_scale = 3;
    (*infer.mutable_parameters())["embedding_scale"].set_double_param(3);
  }
  return Join(std::move(infer), item, &OwnStub::Encode);
}

Twins RotaryTwins(const Preset& preset, const ResolvedSpec& resolved, Dtype dtype) {
  RopeRequest item;
  inference::ModelInferRequest infer;
  infer.set_model_name(preset.name);
  item.spec = testing::Complete(preset);
  SetParameters(item.spec, &infer);
  item.positions = AddPositions("POSITIONS", PositionsWith(dtype), resolved.axes, &infer);
  item.tensors = {AddTensor("Q", dtype, {kTokens, 2, resolved.head_dim}, &infer),
                  AddTensor("K", dtype, {kTokens, 1, resolved.head_dim}, &infer)};
  auto& direction = (*infer.mutable_parameters())["direction"];
  direction.set_string_param("FORWARD");
  if (dtype == Dtype::kFloat64) {
    item.direction = Direction::kInverse;
    direction.set_string_param("INVERSE");
  } else if (dtype == Dtype::kBFloat16) {
    item.direction = Direction::kDelta;
    direction.set_string_param("DELTA");
    item.from_positions = AddPositions("FROM_POSITIONS", Dtype::kInt64, resolved.axes, &infer);
  }
  return Join(std::move(infer), item, &OwnStub::ApplyRoPE);
}

Twins BiasTwins(const BiasPreset& preset, Dtype dtype) {
  constexpr int64_t kHeads = 2;
  const bool window = preset.spec.family == BiasFamily::kSwin;
  const bool buckets = preset.spec.family == BiasFamily::kDeberta;
  BiasRequest item;
  inference::ModelInferRequest infer;
  infer.set_model_name(preset.name);
  auto& parameters = *infer.mutable_parameters();
  item.spec.preset = preset.name;
  item.heads = buckets ? 1 : kHeads;
  item.output_dtype = buckets ? Dtype::kInt64 : dtype;
  parameters["heads"].set_int64_param(item.heads);
  int64_t extent = kTokens;
  if (window) {
    item.spec.window = {2, 3};
    parameters["window"].set_string_param("[2, 3]");
    extent = 6;
  } else {
    const Dtype positions = dtype == Dtype::kFloat64 ? Dtype::kInt64 : Dtype::kInt32;
    item.query_positions = AddPositions("QUERY_POSITIONS", positions, 1, &infer);
    item.key_positions = AddPositions("KEY_POSITIONS", positions, 1, &infer);
  }
  if (!buckets) {
    item.add_to = AddTensor("SCORES", dtype, {kHeads, extent, extent}, &infer);
  }
  const auto rule = CompileBias(item.spec, item.heads, "item");
  EXPECT_TRUE(rule.ok()) << rule.status();
  if (rule->table_rows > 0) {
    item.table_values = AddTensor("TABLE", Dtype::kFloat32, {rule->table_rows, item.heads}, &infer);
  }
  return Join(std::move(infer), item, &OwnStub::AttentionBias);
}

std::vector<Twins> AllTwins() {
  std::vector<Twins> twins;
  for (const Dtype dtype : kTypes) {
    for (const Preset& preset : Presets()) {
      const auto resolved = ResolveSpec(testing::Complete(preset));
      EXPECT_TRUE(resolved.ok()) << preset.name << ": " << resolved.status();
      const bool rotary = resolved->kind == SpecKind::kRotary;
      twins.push_back(rotary ? RotaryTwins(preset, *resolved, dtype)
                             : EncodingTwins(preset, *resolved, dtype));
    }
    for (const BiasPreset& preset : BiasPresets()) twins.push_back(BiasTwins(preset, dtype));
  }
  return twins;
}

class SameBytesTest : public ::testing::Test {
 protected:
  // Every request once through our own API; `through` says how the twin is sent.
  void CompareAll(const std::function<Blobs(const inference::ModelInferRequest&)>& through) {
    const std::vector<Twins> all = AllTwins();
    ASSERT_EQ(all.size(), std::size(kTypes) * PresetSet().models().size());
    for (const Twins& twins : all) {
      SCOPED_TRACE(twins.infer.ShortDebugString().substr(0, 300));
      grpc::ClientContext context;
      Blobs want;
      const grpc::Status status = twins.own(*own_, &context, &want);
      ASSERT_TRUE(status.ok()) << status.error_message();
      ASSERT_FALSE(want.empty());
      EXPECT_NE(std::count_if(want[0].begin(), want[0].end(), [](char c) { return c != 0; }), 0);
      ASSERT_EQ(through(twins.infer), want);
    }
  }

  Blobs Unary(const inference::ModelInferRequest& request) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const grpc::Status status = infer_->ModelInfer(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.raw_output_contents().begin(), response.raw_output_contents().end()};
  }

  // All tensors in one region: inputs one behind the other, then outputs, or outputs over the input
  // that they are made of.
  Blobs ThroughRegion(inference::ModelInferRequest request, bool in_place) {
    const Blobs sizes = Unary(request);
    std::string bytes;
    std::vector<std::pair<std::string, int64_t>> begins;
    for (int i = 0; i < request.inputs_size(); ++i) {
      auto* const input = request.mutable_inputs(i);
      const std::string& raw = request.raw_input_contents(i);
      begins.emplace_back(input->name(), bytes.size());
      SetRegion(kRegion, raw.size(), bytes.size(), input->mutable_parameters());
      bytes += raw;
    }
    request.clear_raw_input_contents();
    std::vector<int64_t> at;
    for (const std::string& name : OutputsOf(request)) {
      const auto source = std::find_if(begins.begin(), begins.end(), [&](const auto& begin) {
        return begin.first == SourceOf(name);
      });
      const std::string& size = sizes[at.size()];
      if (in_place && source != begins.end()) {
        at.push_back(source->second);
      } else {
        at.push_back(bytes.size());
        bytes += std::string(size.size(), 'x');
      }
      auto* const output = request.add_outputs();
      output->set_name(name);
      SetRegion(kRegion, size.size(), at.back(), output->mutable_parameters());
    }
    const testing::SharedMemory memory(bytes);
    Register(memory.key(), static_cast<int64_t>(bytes.size()));
    EXPECT_THAT(Unary(request), ::testing::Each(""));
    Unregister();
    Blobs out;
    for (size_t i = 0; i < at.size(); ++i)
      out.push_back(memory.bytes().substr(at[i], sizes[i].size()));
    return out;
  }

  static Blobs OutputsOf(const inference::ModelInferRequest& request) {
    const Model& model = PresetModel(request.model_name());
    if (model.kind == ModelKind::kRotary) return {"Q_OUT", "K_OUT"};
    return {model.outputs[0].name};
  }

  // The input that an output may take the place of.
  static std::string SourceOf(const std::string& output) {
    if (output == "Q_OUT") return "Q";
    if (output == "K_OUT") return "K";
    return output == "ENCODING" ? "EMBEDDINGS" : "SCORES";
  }

  void Register(const std::string& key, int64_t bytes) {
    grpc::ClientContext context;
    inference::SystemSharedMemoryRegisterRequest request;
    inference::SystemSharedMemoryRegisterResponse response;
    request.set_name(kRegion);
    request.set_key(key);
    request.set_byte_size(bytes);
    EXPECT_TRUE(infer_->SystemSharedMemoryRegister(&context, request, &response).ok());
  }
  void Unregister() {
    grpc::ClientContext context;
    inference::SystemSharedMemoryUnregisterRequest request;
    inference::SystemSharedMemoryUnregisterResponse response;
    request.set_name(kRegion);
    EXPECT_TRUE(infer_->SystemSharedMemoryUnregister(&context, request, &response).ok());
  }

  static constexpr char kRegion[] = "all";
  const std::unique_ptr<Server> server_ = testing::StartServer(testing::SharedMemoryOptions());
  const std::shared_ptr<grpc::Channel> channel_ = testing::NewChannel(server_->listeners()[0]);
  const std::unique_ptr<InferStub> infer_ = inference::GRPCInferenceService::NewStub(channel_);
  const std::unique_ptr<OwnStub> own_ = v1::PositionEmbeddingService::NewStub(channel_);
};

TEST_F(SameBytesTest, EveryModelAndTypeInTheMessage) {
  CompareAll([&](const auto& request) { return Unary(request); });
}

TEST_F(SameBytesTest, EveryModelAndTypeInSharedMemory) {
  CompareAll([&](const auto& request) { return ThroughRegion(request, /*in_place=*/false); });
}

TEST_F(SameBytesTest, EveryModelAndTypeInPlace) {
  CompareAll([&](const auto& request) { return ThroughRegion(request, /*in_place=*/true); });
}

TEST_F(SameBytesTest, EveryModelAndTypeOnAStream) {
  testing::TestContext context(std::chrono::minutes(5));
  const auto stream = infer_->ModelStreamInfer(&context);
  CompareAll([&](const auto& request) {
    inference::ModelStreamInferResponse response;
    EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
    EXPECT_EQ(response.error_message(), "");
    const auto& raw = response.infer_response().raw_output_contents();
    return Blobs(raw.begin(), raw.end());
  });
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace phasor::oip
