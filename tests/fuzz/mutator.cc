// SPDX-License-Identifier: Apache-2.0
// Makes random changes to requests.
#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "google/protobuf/descriptor.h"
#include "inference/grpc_service.pb.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "server/oip/datatype.h"
#include "tests/fuzz/check_infer.h"

namespace phasor::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int64_t kMaxRepairedBytes = 1 << 16;

using Strings = google::protobuf::RepeatedPtrField<std::string>;

void AddEntry(const v1::TensorSpec& tensor, Strings* raw) {
  if (tensor.source_case() != v1::TensorSpec::SOURCE_NOT_SET) return;
  std::string entry;
  if (const auto desc = TensorDescFromWire(tensor, "x"); desc.ok()) {
    const auto bytes = SpannedBytes(*desc, "x");
    if (bytes.ok() && *bytes <= kMaxRepairedBytes) entry.resize(*bytes, '\x3C');
  }
  raw->Add(std::move(entry));
}

void AddEntries(const v1::Positions& positions, Strings* raw) {
  if (positions.has_tensor()) AddEntry(positions.tensor(), raw);
}

void AddEntries(const v1::EncodeItem& item, Strings* raw) {
  AddEntries(item.positions(), raw);
  if (item.has_add_to()) AddEntry(item.add_to(), raw);
}

// Slots 0, 1, 2, ...
void AddSlots(const v1::TensorSpec& tensor, Strings* raw) {
  const int before = raw->size();
  AddEntry(tensor, raw);
  if (raw->size() == before) return;
  std::string& entry = *raw->Mutable(before);
  const size_t size = tensor.dtype() == v1::DTYPE_INT32 ? 4 : 8;
  for (size_t at = 0; at + size <= entry.size(); at += size) {
    const auto slot = static_cast<int64_t>(at / size);
    std::memcpy(entry.data() + at, &slot, size);
  }
}

void AddEntries(const v1::PagedCacheWrite& cache, Strings* raw) {
  if (cache.has_values()) AddEntry(cache.values(), raw);
  if (cache.has_key_cache()) AddEntry(cache.key_cache(), raw);
  if (cache.has_value_cache()) AddEntry(cache.value_cache(), raw);
  if (cache.has_slot_mapping()) AddSlots(cache.slot_mapping(), raw);
}

void AddEntries(const v1::ApplyRoPEItem& item, Strings* raw) {
  AddEntries(item.positions(), raw);
  for (const v1::RopeTensor& tensor : item.tensors()) {
    if (tensor.has_tensor()) AddEntry(tensor.tensor(), raw);
  }
  AddEntries(item.from_positions(), raw);
  AddEntries(item.paged_cache(), raw);
}

void AddEntries(const v1::MoveKeysItem& item, Strings* raw) {
  for (const v1::KeyPool& pool : item.pools()) {
    if (pool.source_case() != v1::KeyPool::SOURCE_NOT_SET) continue;
    const bool small = pool.size_bytes() >= 0 && pool.size_bytes() <= kMaxRepairedBytes;
    raw->Add(std::string(static_cast<size_t>(small ? pool.size_bytes() : 0), '\x3C'));
  }
}

template <typename Request>
bool RepairUnary(Message* message) {
  auto* request = dynamic_cast<Request*>(message);
  if (request == nullptr) return false;
  request->clear_raw();
  AddEntries(request->item(), request->mutable_raw());
  return true;
}

template <typename Request>
bool RepairBatch(Message* message) {
  auto* request = dynamic_cast<Request*>(message);
  if (request == nullptr) return false;
  request->clear_raw();
  for (const auto& item : request->items()) AddEntries(item, request->mutable_raw());
  return true;
}

void RepairInfer(Message* message) {
  auto* request = dynamic_cast<inference::ModelInferRequest*>(message);
  if (request == nullptr) return;
  request->clear_raw_input_contents();
  for (const auto& input : request->inputs()) {
    if (input.parameters().contains("shared_memory_region") || input.has_contents()) continue;
    const auto dtype = oip::DtypeOf(input.datatype());
    const TensorDesc desc{
        dtype.value_or(Dtype::kFloat32), {input.shape().begin(), input.shape().end()}, {}};
    const auto bytes = SpannedBytes(desc, "x");
    const bool small = bytes.ok() && *bytes <= kMaxRepairedBytes;
    request->add_raw_input_contents(std::string(small ? *bytes : 0, '\x3C'));
  }
}

}  // namespace

std::unique_ptr<Message> NewRequest(uint8_t method) {
  switch (method % kMethodCount) {
    case 0:
      return std::make_unique<v1::EncodeRequest>();
    case 1:
      return std::make_unique<v1::ApplyRoPERequest>();
    case 2:
      return std::make_unique<v1::BatchEncodeRequest>();
    case 3:
      return std::make_unique<v1::BatchApplyRoPERequest>();
    case kModelInfer:
      return std::make_unique<inference::ModelInferRequest>();
    case 5:
      return std::make_unique<v1::MoveKeysRequest>();
    default:
      return std::make_unique<v1::BatchMoveKeysRequest>();
  }
}

void RepairRaw(Message* request) {
  if (RepairUnary<v1::EncodeRequest>(request)) return;
  if (RepairUnary<v1::ApplyRoPERequest>(request)) return;
  if (RepairUnary<v1::MoveKeysRequest>(request)) return;
  if (RepairBatch<v1::BatchEncodeRequest>(request)) return;
  if (RepairBatch<v1::BatchApplyRoPERequest>(request)) return;
  if (RepairBatch<v1::BatchMoveKeysRequest>(request)) return;
  RepairInfer(request);
}

std::string Mutator::Next() {
  std::string input = Pick();
  for (uint64_t changes = 1 + Below(3); changes > 0; --changes) {
    if (Below(3) == 0) {
      ChangeBytes(&input);
    } else {
      ChangeFields(&input);
    }
  }
  return input;
}

void Mutator::ChangeBytes(std::string* input) {
  const size_t at = Below(input->size());
  const size_t length = std::min<size_t>(1 + Below(16), input->size() - at);
  switch (Below(7)) {
    case 0:
      (*input)[at] = static_cast<char>((*input)[at] ^ (1 << Below(8)));
      break;
    case 1:
      (*input)[at] = static_cast<char>(Below(256));
      break;
    case 2:
      input->insert(at, length, static_cast<char>(Below(256)));
      break;
    case 3:
      input->erase(at, length);
      break;
    case 4:
      input->resize(at);
      break;
    case 5:
      input->insert(at, input->substr(at, length));
      break;
    default: {  // the head of this and the tail of another
      const std::string& other = Pick();
      *input = input->substr(0, at) + other.substr(Below(other.size()));
    }
  }
  if (input->size() < 2) input->resize(2);
}

void Mutator::ChangeFields(std::string* input) {
  const std::unique_ptr<Message> request = NewRequest(static_cast<uint8_t>((*input)[0]));
  if (!request->ParseFromArray(input->data() + 2, static_cast<int>(input->size()) - 2)) return;
  ChangeField(request.get());
  if (Below(4) != 0) RepairRaw(request.get());
  if (request->ByteSizeLong() > (1 << 18)) return;
  input->resize(2);
  *input += request->SerializePartialAsString();
}

// Walks down a random path and changes the field at its end.
void Mutator::ChangeField(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const auto* field = message->GetDescriptor()->field(
      static_cast<int>(Below(message->GetDescriptor()->field_count())));
  const bool raw = field->name() == "raw" || field->name() == "raw_input_contents";
  if (raw && Below(8) != 0) return ChangeField(message);
  if (Below(6) == 0) return reflection.ClearField(message, field);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return SetField(message, field);
  if (!field->is_repeated()) {
    // Rarely make what is not there: most of the time go where something is.
    if (!reflection.HasField(*message, field) && Below(4) != 0) return ChangeField(message);
    return ChangeField(reflection.MutableMessage(message, field));
  }
  const int size = reflection.FieldSize(*message, field);
  if (size == 0 || Below(8) == 0) {
    Message* const added = reflection.AddMessage(message, field);
    if (size > 0 && Below(2) == 0) {
      added->CopyFrom(reflection.GetRepeatedMessage(*message, field, 0));
    }
    return ChangeField(added);
  }
  ChangeField(reflection.MutableRepeatedMessage(message, field, static_cast<int>(Below(size))));
}

int64_t Mutator::Integer() {
  static constexpr int64_t kInteresting[] = {0,
                                             1,
                                             2,
                                             3,
                                             4,
                                             7,
                                             8,
                                             16,
                                             64,
                                             65536,
                                             65537,
                                             -1,
                                             -2,
                                             1LL << 31,
                                             1LL << 32,
                                             1LL << 40,
                                             (1LL << 40) + 1,
                                             1LL << 62,
                                             std::numeric_limits<int64_t>::max(),
                                             std::numeric_limits<int64_t>::min()};
  return Below(2) == 0 ? kInteresting[Below(std::size(kInteresting))]
                       : static_cast<int64_t>(Below(12));
}

double Mutator::Real() {
  using Limits = std::numeric_limits<double>;
  static constexpr double kInteresting[] = {0.0,
                                            -0.0,
                                            1.0,
                                            -1.0,
                                            0.5,
                                            1e-3,
                                            1e4,
                                            5e5,
                                            0x1p63,
                                            0x1.fffffp62,
                                            1e300,
                                            -1e300,
                                            1e-300,
                                            Limits::quiet_NaN(),
                                            Limits::infinity(),
                                            -Limits::infinity(),
                                            Limits::denorm_min()};
  return kInteresting[Below(std::size(kInteresting))];
}

void Mutator::SetField(Message* message, const FieldDescriptor* field) {
  static const char* const kTexts[] = {
      "", "transformer", "rope-half-split", "grid-2d-concat", "{}", "cpu", "cuda", "x",
      // Of MoveKeys.
      "nhd", "vllm-flash", "vllm-paged-x", "mla-576",
      // Of ModelInfer.
      "llama-3", "alibi", "t5", "POSITIONS", "EMBEDDINGS", "Q", "K", "FROM_POSITIONS", "ENCODING",
      "Q_OUT", "BIAS", "FP64", "FP32", "FP16", "BF16", "INT64", "INT32", "1", "dim", "heads",
      "direction", "DELTA", "[1, 2]", "timeout", kRegion, "shared_memory_region",
      "shared_memory_byte_size", "shared_memory_offset"};
  const Reflection& r = *message->GetReflection();
  const bool many = field->is_repeated();
  if (many && r.FieldSize(*message, field) > 0 && Below(2) == 0) r.RemoveLast(message, field);
  const int64_t integer = Integer();
  const double real = Real();
  const std::string text = kTexts[Below(std::size(kTexts))];
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      many ? r.AddInt32(message, field, static_cast<int32_t>(integer))
           : r.SetInt32(message, field, static_cast<int32_t>(integer));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      many ? r.AddInt64(message, field, integer) : r.SetInt64(message, field, integer);
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      many ? r.AddUInt32(message, field, static_cast<uint32_t>(integer))
           : r.SetUInt32(message, field, static_cast<uint32_t>(integer));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      many ? r.AddDouble(message, field, real) : r.SetDouble(message, field, real);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      many ? r.AddFloat(message, field, static_cast<float>(real))
           : r.SetFloat(message, field, static_cast<float>(real));
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      many ? r.AddBool(message, field, integer % 2 != 0)
           : r.SetBool(message, field, integer % 2 != 0);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      r.SetEnumValue(message, field,
                     Below(8) == 0 ? static_cast<int>(integer)
                                   : static_cast<int>(Below(field->enum_type()->value_count())));
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      many ? r.AddString(message, field, text) : r.SetString(message, field, text);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      many ? r.AddUInt64(message, field, static_cast<uint64_t>(integer))
           : r.SetUInt64(message, field, static_cast<uint64_t>(integer));
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;  // is walked
  }
}

}  // namespace phasor::fuzz
