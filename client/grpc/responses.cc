// SPDX-License-Identifier: Apache-2.0
// Checks a server's responses against the calls that they answer, and copies the results to where
// the calls want them.
#include "client/grpc/responses.h"

#include <optional>
#include <utility>

#include "client/common/calls.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/convert_model.h"
#include "proto/convert_move.h"
#include "proto/grpc_status.h"

namespace phasor::client_internal {
namespace {

template <typename Message>
absl::StatusOr<Message> Parse(const std::string& header) {
  Message message;
  if (!message.ParseFromString(header)) return Unfit("cannot be parsed");
  return message;
}

RunInfo InfoFromWire(const v1::RunInfo& wire) {
  return {wire.spec_fingerprint(), wire.numerics_version(), wire.backend()};
}

// The number of tokens of `positions`; nullopt for a tensor, where it depends on the spec.
std::optional<int64_t> TokenCount(const Positions& positions) {
  auto count = [](const AxisRange& range) {
    return std::visit([](const auto& r) { return r.count; }, range);
  };
  if (const auto* range = std::get_if<AxisRange>(&positions)) return count(*range);
  if (const auto* grid = std::get_if<PositionGrid>(&positions)) {
    int64_t product = 1;
    for (const AxisRange& axis : grid->axes) product *= count(axis);
    return product;
  }
  if (const auto* ragged = std::get_if<RaggedPositions>(&positions)) {
    int64_t sum = 0;
    for (int64_t length : ragged->lengths) sum += length;
    return sum;
  }
  return std::nullopt;
}

bool HasRows(const Positions& positions, int64_t rows) {
  if (const auto* tensor = std::get_if<PositionTensor>(&positions)) {
    const int64_t numbers = ElementCount({tensor->dtype, tensor->shape, {}});
    if (rows == 0) return numbers == 0;
    return numbers % rows == 0 && numbers / rows >= 1 && numbers / rows <= kMaxAxes;
  }
  return TokenCount(positions) == rows;
}

// The output tensors of a response. All are checked before any is copied.
class Outputs {
 public:
  // `destinations`: how many outputs the server has written itself, so that the message must not
  // hold them.
  Outputs(const WalkedMessage& message, int destinations)
      : raw_(message.raw), destinations_(destinations) {}

  // Adds the `destinations` of the next item of a batch.
  void Expect(int destinations) { destinations_ += destinations; }

  // The next tensor of the response. If it is inline, its bytes are those of `wire`.
  absl::StatusOr<TensorDesc> Next(const v1::TensorSpec& wire, std::string_view what) {
    absl::StatusOr<TensorDesc> tensor =
        TensorDescFromWire(wire, std::string(what), Sources::kShared);
    if (!tensor.ok()) return Unfit(tensor.status().message());
    if (!tensor->strides.empty()) return Unfit(what, ".strides: not empty");
    const absl::StatusOr<int64_t> bytes = DenseBytes(*tensor, what);
    if (!bytes.ok()) return Unfit(bytes.status().message());
    last_is_inline_ = !wire.has_region() && !wire.has_device();
    if (!last_is_inline_) {
      --destinations_;
      return tensor;
    }
    if (next_ == raw_.size()) return Unfit(what, ": no bytes");
    const int64_t received = PieceBytes(raw_[next_]);
    if (received != *bytes) {
      return Unfit(what, ": ", received, " bytes, its shape has ", *bytes);
    }
    ++next_;
    return tensor;
  }

  // The next bytes of the response go to `pool`, whole.
  absl::Status NextPool(absl::Span<std::byte> pool) {
    if (next_ == raw_.size()) return Unfit("fewer pools than its result names");
    const int64_t received = PieceBytes(raw_[next_]);
    if (received != static_cast<int64_t>(pool.size())) {
      return Unfit("raw[", next_, "]: ", received, " bytes, its pool has ", pool.size());
    }
    copies_.push_back({next_++, pool.data(), nullptr});
    return absl::OkStatus();
  }

  // Pools in shared memory, which the response does not name.
  int TakeDestinations() { return std::exchange(destinations_, 0); }

  // Where the bytes of the last tensor from Next go, if the message holds them.
  void CopyLastTo(std::byte* dense) {
    if (last_is_inline_) copies_.push_back({next_ - 1, dense, nullptr});
  }
  void CopyLastTo(const MutableTensorView& view) {
    if (view.device.memory != nullptr) {
      misplaced_ |= last_is_inline_;
      return;
    }
    if (IsDense(view.desc)) return CopyLastTo(view.data);
    if (last_is_inline_) copies_.push_back({next_ - 1, nullptr, &view});
  }

  // Copies all outputs. INTERNAL: the response holds more tensors than were asked for.
  absl::Status Copy() const {
    if (next_ != raw_.size()) return Unfit(raw_.size() - next_, " tensors more than asked for");
    if (destinations_ != 0 || misplaced_) {
      return Unfit("not the outputs in shared memory that were asked for");
    }
    for (const auto& [entry, dense, view] : copies_) {
      if (view == nullptr) {
        CopyPieces(raw_[entry], dense);
        continue;
      }
      PHASOR_ASSIGN_OR_RETURN(Bytes gathered, Bytes::Allocate(PieceBytes(raw_[entry])));
      CopyPieces(raw_[entry], gathered.data());
      CopyFromDense(gathered.data(), *view);
    }
    return absl::OkStatus();
  }

 private:
  struct PendingCopy {
    size_t entry;
    std::byte* dense;
    const MutableTensorView* view;  // set if the tensor is not dense
  };
  const std::vector<PieceList>& raw_;
  int destinations_;
  size_t next_ = 0;
  bool last_is_inline_ = true;
  bool misplaced_ = false;  // the message holds bytes of an output on a device
  std::vector<PendingCopy> copies_;
};

// Puts the last output from Next into the memory of the call, or of the result.
template <typename Call>
absl::Status PlaceOutput(const Call& call, TensorDesc output, const v1::RunInfo& info,
                         std::string_view path, Outputs& outputs,
                         absl::StatusOr<EncodeResult>& result) {
  EncodeResult value{.output = std::move(output), .info = InfoFromWire(info)};
  if (call.output.has_value()) {
    const absl::Status fits = CheckOutput(*call.output, value.output, StrCat(path, ".output"));
    if (!fits.ok()) {
      result = fits;
      return absl::OkStatus();
    }
    outputs.CopyLastTo(*call.output);
  } else {
    PHASOR_ASSIGN_OR_RETURN(
        value.bytes, Bytes::Allocate(ElementCount(value.output) * SizeOf(value.output.dtype)));
    outputs.CopyLastTo(value.bytes.data());
  }
  result = std::move(value);
  return absl::OkStatus();
}

// The rank of an encoding is 2; a table's dimensions are with or without one for heads.
bool HasRankOf(EncodeOutput form, size_t rank) {
  if (form == EncodeOutput::kEmbedding) return rank == 2;
  const size_t table = TableShape(form, {1, 1, 1}).size();
  return rank == 1 + table || rank == 2 + table;
}

absl::Status ReadItem(const v1::EncodeResult& wire, const EncodeCall& call, std::string_view path,
                      Outputs& outputs, absl::StatusOr<EncodeResult>& result) {
  PHASOR_ASSIGN_OR_RETURN(TensorDesc output, outputs.Next(wire.output(), "result.output"));
  if (output.dtype != call.output_dtype || !HasRankOf(call.form, output.shape.size()) ||
      !HasRows(call.positions.value(), output.shape[0])) {
    return Unfit("result.output: not of the type or token count that was asked for");
  }
  return PlaceOutput(call, std::move(output), wire.info(), path, outputs, result);
}

absl::Status ReadItem(const v1::ApplyRoPEResult& wire, const RopeCall& call, std::string_view,
                      Outputs& outputs, absl::StatusOr<RunInfo>& result) {
  const size_t count = call.tensors.size() + (call.paged.has_value() ? 1 : 0);
  if (static_cast<size_t>(wire.tensors_size()) != count) {
    return Unfit("result.tensors: ", wire.tensors_size(), ", asked for ", count);
  }
  for (int i = 0; i < wire.tensors_size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const MutableTensorView& wanted =
        index < call.tensors.size() ? call.tensors[index].output : call.paged->values.output;
    PHASOR_ASSIGN_OR_RETURN(const TensorDesc output,
                            outputs.Next(wire.tensors(i), StrCat("result.tensors[", i, "]")));
    if (output.dtype != wanted.desc.dtype || output.shape != wanted.desc.shape) {
      return Unfit("result.tensors[", i, "]: not of the type or shape that was asked for");
    }
    outputs.CopyLastTo(wanted);
  }
  result = InfoFromWire(wire.info());
  return absl::OkStatus();
}

// Takes the pools of this call that may have been written, each as a whole.
absl::Status ReadPools(const v1::MoveKeysResult& wire, const MoveCall& call, Outputs& outputs) {
  const int placed = outputs.TakeDestinations();
  const int64_t pools = std::ssize(call.pools);
  const int64_t most = call.mode == MoveMode::kCompare ? 0 : pools - placed;
  if (wire.inline_pools_size() > most) {
    return Unfit(wire.inline_pools_size(), " pools; not those that were asked for");
  }
  int64_t next = 0;
  for (int i = 0; i < wire.inline_pools_size(); ++i) {
    const int64_t pool = wire.inline_pools(i);
    if (pool < next || pool >= pools || call.pools[static_cast<size_t>(pool)].on_device()) {
      return Unfit("result.inline_pools[", i, "]: ", pool, ", not the next of the pools");
    }
    next = pool + 1;
    PHASOR_RETURN_IF_ERROR(outputs.NextPool(call.pools[static_cast<size_t>(pool)].memory()));
  }
  return absl::OkStatus();
}

absl::Status ReadItem(const v1::MoveKeysResult& wire, const MoveCall& call, std::string_view,
                      Outputs& outputs, absl::StatusOr<MoveResult>& result) {
  const size_t compared = call.mode == MoveMode::kCompare ? call.layers.size() : 0;
  if (static_cast<size_t>(wire.specs_size()) != call.specs.size() ||
      static_cast<size_t>(wire.differences_size()) != compared) {
    return Unfit("result: not of the specs or layers that were asked for");
  }
  PHASOR_RETURN_IF_ERROR(ReadPools(wire, call, outputs));
  MoveResult value{.info = InfoFromWire(wire.info()),
                   .tokens = wire.tokens(),
                   .moved_bytes = wire.moved_bytes()};
  for (const v1::KeySpecInfo& spec : wire.specs()) {
    value.specs.push_back({spec.fingerprint(), spec.from_fingerprint()});
  }
  for (const v1::KeyDifference& difference : wire.differences()) {
    value.differences.push_back(DifferenceFromWire(difference));
  }
  result = std::move(value);
  return absl::OkStatus();
}

template <typename Response, typename Call, typename Result>
absl::Status ReadUnary(const WalkedMessage& message, const Call& call, int destinations,
                       Result& result) {
  PHASOR_ASSIGN_OR_RETURN(const Response response, Parse<Response>(message.header));
  Outputs outputs(message, destinations);
  absl::StatusOr<Result> item = absl::UnknownError("");
  PHASOR_RETURN_IF_ERROR(ReadItem(response.result(), call, kItemPath, outputs, item));
  PHASOR_RETURN_IF_ERROR(outputs.Copy());
  PHASOR_ASSIGN_OR_RETURN(result, std::move(item));
  return absl::OkStatus();
}

template <typename Result, typename Wire, typename Call>
absl::StatusOr<Result> ReadStreamed(const Wire& wire, const WalkedMessage& message,
                                    const Call& call, int destinations) {
  if (wire.status().code() != 0) {
    return StatusFromWire(wire.status().code(), wire.status().message());
  }
  Outputs outputs(message, destinations);
  absl::StatusOr<Result> result = absl::UnknownError("");
  PHASOR_RETURN_IF_ERROR(ReadItem(wire, call, kItemPath, outputs, result));
  PHASOR_RETURN_IF_ERROR(outputs.Copy());
  return result;
}

template <typename Response, typename Call, typename Result>
absl::Status ReadBatch(const WalkedMessage& message, const BatchCall<Call>& batch,
                       std::vector<absl::StatusOr<Result>>& results) {
  PHASOR_ASSIGN_OR_RETURN(const Response response, Parse<Response>(message.header));
  if (static_cast<size_t>(response.results_size()) != batch.calls.size()) {
    return Unfit(response.results_size(), " results, asked for ", batch.calls.size());
  }
  Outputs outputs(message, 0);
  results.clear();
  for (size_t i = 0; i < batch.calls.size(); ++i) {
    const auto& wire = response.results(static_cast<int>(i));
    absl::StatusOr<Result>& result = results.emplace_back(absl::UnknownError(""));
    if (!batch.local[i].ok()) {
      result = batch.local[i];
      continue;
    }
    if (wire.status().code() != 0) {
      result = StatusFromWire(wire.status().code(), wire.status().message());
      continue;
    }
    outputs.Expect(batch.destinations[i]);
    PHASOR_RETURN_IF_ERROR(ReadItem(wire, batch.calls[i], BatchItemPath(i), outputs, result));
  }
  return outputs.Copy();
}

}  // namespace

absl::Status ReadResponse(const WalkedMessage& message, const EncodeCall& call, int destinations,
                          EncodeResult& result) {
  return ReadUnary<v1::EncodeResponse>(message, call, destinations, result);
}

absl::Status ReadResponse(const WalkedMessage& message, const RopeCall& call, int destinations,
                          RunInfo& result) {
  return ReadUnary<v1::ApplyRoPEResponse>(message, call, destinations, result);
}

absl::Status ReadResponse(const WalkedMessage& message, const BiasCall& call, int destinations,
                          EncodeResult& result) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::AttentionBiasResponse>(message.header));
  Outputs outputs(message, destinations);
  PHASOR_ASSIGN_OR_RETURN(TensorDesc output, outputs.Next(response.output(), "output"));
  if (output.dtype != call.output_dtype || output.shape.size() != 3 ||
      output.shape[0] != call.heads) {
    return Unfit("output: not of the type or heads that were asked for");
  }
  absl::StatusOr<EncodeResult> item = absl::UnknownError("");
  PHASOR_RETURN_IF_ERROR(
      PlaceOutput(call, std::move(output), response.info(), kItemPath, outputs, item));
  PHASOR_RETURN_IF_ERROR(outputs.Copy());
  PHASOR_ASSIGN_OR_RETURN(result, std::move(item));
  return absl::OkStatus();
}

absl::Status ReadResponse(const WalkedMessage& message, const MoveCall& call, int destinations,
                          MoveResult& result) {
  return ReadUnary<v1::MoveKeysResponse>(message, call, destinations, result);
}

absl::Status ReadResponse(const WalkedMessage& message, const BatchCall<EncodeCall>& batch, int,
                          std::vector<absl::StatusOr<EncodeResult>>& results) {
  return ReadBatch<v1::BatchEncodeResponse>(message, batch, results);
}

absl::Status ReadResponse(const WalkedMessage& message, const BatchCall<RopeCall>& batch, int,
                          std::vector<absl::StatusOr<RunInfo>>& results) {
  return ReadBatch<v1::BatchApplyRoPEResponse>(message, batch, results);
}

absl::Status ReadResponse(const WalkedMessage& message, const BatchCall<MoveCall>& batch, int,
                          std::vector<absl::StatusOr<MoveResult>>& results) {
  return ReadBatch<v1::BatchMoveKeysResponse>(message, batch, results);
}

absl::StatusOr<EncodeResult> ReadResult(const v1::EncodeResult& wire, const WalkedMessage& message,
                                        const EncodeCall& call, int destinations) {
  return ReadStreamed<EncodeResult>(wire, message, call, destinations);
}

absl::StatusOr<RunInfo> ReadResult(const v1::ApplyRoPEResult& wire, const WalkedMessage& message,
                                   const RopeCall& call, int destinations) {
  return ReadStreamed<RunInfo>(wire, message, call, destinations);
}

absl::StatusOr<MoveResult> ReadResult(const v1::MoveKeysResult& wire, const WalkedMessage& message,
                                      const MoveCall& call, int destinations) {
  return ReadStreamed<MoveResult>(wire, message, call, destinations);
}

absl::StatusOr<SpecDetails> ReadResolveSpecResponse(const std::string& header) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::ResolveSpecResponse>(header));
  absl::StatusOr<Spec> spec = SpecFromWire(response.spec(), "spec");
  if (!spec.ok()) return Unfit(spec.status().message());
  SpecDetails details{.spec = *std::move(spec),
                      .amplitude = response.amplitude(),
                      .width = response.width(),
                      .info = InfoFromWire(response.info())};
  for (const v1::ResolvedPair& pair : response.pairs()) {
    details.pairs.push_back(PairFromWire(pair));
  }
  if (response.has_parity_difference()) {
    auto difference = ReportFromWire(response.parity_difference());
    if (!difference.ok()) return Unfit(difference.status().message());
    details.parity_difference = *std::move(difference);
  }
  return details;
}

absl::StatusOr<ModelDetails> ReadResolveModelResponse(const std::string& header) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::ResolveModelResponse>(header));
  auto details = ModelDetailsFromWire(response);
  return details.ok() ? std::move(details) : Unfit(details.status().message());
}

absl::StatusOr<std::vector<Preset>> ReadListPresetsResponse(const std::string& header) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::ListPresetsResponse>(header));
  std::vector<Preset> presets;
  for (const v1::Preset& wire : response.presets()) {
    absl::StatusOr<Spec> spec = SpecFromWire(wire.spec(), StrCat(wire.name(), ".spec"));
    if (!spec.ok()) return Unfit(spec.status().message());
    presets.push_back(
        {.name = wire.name(),
         .summary = wire.summary(),
         .source = wire.source(),
         .required_fields = {wire.required_fields().begin(), wire.required_fields().end()},
         .spec = *std::move(spec),
         .context_length =
             wire.has_context_length() ? std::optional(wire.context_length()) : std::nullopt,
         .verified = wire.verified(),
         .note = wire.note()});
  }
  return presets;
}

namespace {

// A server of before there could be several names only one.
std::vector<ServerDevice> DevicesOf(const v1::GetServerInfoResponse& response) {
  const auto read = [](const v1::Device& wire) {
    return ServerDevice{wire.number(), wire.name(), wire.uuid(),
                        wire.state() == v1::DEVICE_STATE_WORKING, wire.error()};
  };
  std::vector<ServerDevice> devices;
  for (const v1::Device& wire : response.devices()) devices.push_back(read(wire));
  if (devices.empty() && response.has_device()) devices.push_back(read(response.device()));
  return devices;
}

}  // namespace

absl::StatusOr<ServerInfo> ReadServerInfoResponse(const std::string& header) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::GetServerInfoResponse>(header));
  const v1::ServerLimits& limits = response.limits();
  std::vector<EncoderInfo> encoders;
  for (const v1::NamedEncoder& encoder : response.encoders()) {
    encoders.push_back({encoder.name(), encoder.spec_fingerprint()});
  }
  return ServerInfo{.version = response.version(),
                    .numerics_version = response.numerics_version(),
                    .backends = {response.backends().begin(), response.backends().end()},
                    .cpu_target = response.cpu_target(),
                    .cpu_threads = response.cpu_threads(),
                    .listeners = {response.listeners().begin(), response.listeners().end()},
                    .max_message_bytes = limits.max_message_bytes(),
                    .max_header_bytes = limits.max_header_bytes(),
                    .max_inflight_bytes = limits.max_inflight_bytes(),
                    .inline_bytes = limits.inline_bytes(),
                    .max_batch_items = limits.max_batch_items(),
                    .lease_socket = response.lease_socket(),
                    .lease_instance = response.lease_instance(),
                    .device_uuid = response.device().uuid(),
                    .devices = DevicesOf(response),
                    .encoders = std::move(encoders)};
}

absl::StatusOr<TableInfo> TableFromWire(const v1::Table& wire) {
  absl::StatusOr<TensorDesc> tensor = TensorDescFromWire(wire.tensor(), "table.tensor");
  if (!tensor.ok()) return Unfit(tensor.status().message());
  return TableInfo{wire.name(), *std::move(tensor), wire.sha256()};
}

absl::StatusOr<TablePage> ReadListTablesResponse(const std::string& header) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::ListTablesResponse>(header));
  TablePage page{.storage = {response.storage().directory(),
                             absl::Milliseconds(response.storage().rescan_interval_ms())},
                 .next_page_token = response.next_page_token()};
  for (const v1::Table& wire : response.tables()) {
    PHASOR_ASSIGN_OR_RETURN(TableInfo table, TableFromWire(wire));
    page.tables.push_back(std::move(table));
  }
  if (page.tables.empty() && !page.next_page_token.empty()) {
    return Unfit("next_page_token: set after no tables");
  }
  return page;
}

absl::StatusOr<TableInfo> ReadGetTableResponse(const std::string& header) {
  PHASOR_ASSIGN_OR_RETURN(const auto response, Parse<v1::GetTableResponse>(header));
  return TableFromWire(response.table());
}

std::string WriteHealthRequest(const std::string& service) {
  if (service.empty()) return "";
  std::string request;
  AppendFieldPrefix(1, service.size(), &request);
  return request + service;
}

absl::StatusOr<Health> ReadHealthResponse(const std::string& header) {
  if (header.empty()) return Health::kUnknown;
  if (header.size() != 2 || header[0] != '\x08') return Unfit("cannot be parsed");
  switch (header[1]) {
    case 1:
      return Health::kServing;
    case 2:
      return Health::kNotServing;
    default:
      return Health::kUnknown;
  }
}

}  // namespace phasor::client_internal
