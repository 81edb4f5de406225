// SPDX-License-Identifier: Apache-2.0
// Reads and checks the JSON header of a .safetensors file, and writes that of a file with one
// tensor.
#include "kernels/tensor/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor {
namespace {

using SortedJson = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr size_t kMaxTensorRank = 32;
constexpr char kMetadata[] = "__metadata__";

// Parses a JSON object. The result is "discarded" if the text is not JSON, not an object, or gives
// a key twice at any depth.
SortedJson ParseObject(std::string_view text) {
  std::vector<std::set<std::string>> keys;  // of the open objects
  bool repeated = false;
  const auto watch = [&](int, SortedJson::parse_event_t event, SortedJson& value) {
    if (event == SortedJson::parse_event_t::object_start) keys.emplace_back();
    if (event == SortedJson::parse_event_t::object_end) keys.pop_back();
    if (event == SortedJson::parse_event_t::key) {
      repeated |= !keys.back().insert(value.get_ref<const std::string&>()).second;
    }
    return true;
  };
  SortedJson json = SortedJson::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (repeated || !json.is_object()) return SortedJson(SortedJson::value_t::discarded);
  return json;
}

std::optional<Dtype> DtypeOf(const SortedJson& json) {
  if (!json.is_string()) return std::nullopt;
  const auto& name = json.get_ref<const std::string&>();
  if (name == "F64") return Dtype::kFloat64;
  if (name == "F32") return Dtype::kFloat32;
  if (name == "F16") return Dtype::kFloat16;
  if (name == "BF16") return Dtype::kBFloat16;
  return std::nullopt;
}

// A dtype of the size of an element of another type; nullopt: not known.
std::optional<Dtype> DtypeOfSize(const SortedJson& json) {
  constexpr std::pair<std::string_view, Dtype> kTypes[] = {
      {"F8_E4M3", Dtype::kFloat8E4M3}, {"F8_E5M2", Dtype::kFloat8E5M2},
      {"F8_E8M0", Dtype::kFloat8E4M3}, {"U8", Dtype::kFloat8E4M3},
      {"I8", Dtype::kFloat8E4M3},      {"BOOL", Dtype::kFloat8E4M3},
      {"I16", Dtype::kFloat16},        {"U16", Dtype::kFloat16},
      {"I32", Dtype::kInt32},          {"U32", Dtype::kInt32},
      {"I64", Dtype::kInt64},          {"U64", Dtype::kInt64}};
  for (const auto& [name, dtype] : kTypes) {
    if (json == name) return dtype;
  }
  return std::nullopt;
}

std::string_view NameOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return "F64";
    case Dtype::kFloat32:
      return "F32";
    case Dtype::kFloat16:
      return "F16";
    case Dtype::kBFloat16:
      return "BF16";
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
    case Dtype::kInt32:
    case Dtype::kInt64:
      break;  // tables do not have these types
  }
  return "?";
}

// Reads a list of at most `max_size` integers >= 0.
std::optional<std::vector<int64_t>> NumbersOf(const SortedJson& json, size_t max_size) {
  if (!json.is_array() || json.size() > max_size) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const SortedJson& number : json) {
    if (!number.is_number_unsigned()) return std::nullopt;
    const auto value = number.get<uint64_t>();
    if (value > uint64_t{1} << 62) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(value));
  }
  return numbers;
}

// Reads one entry of the header. `data_size` is the number of bytes after the header.
absl::StatusOr<NamedTensor> TensorOf(const std::string& name, const SortedJson& json,
                                     int64_t data_size, OtherTypes other_types,
                                     std::string_view path) {
  const bool complete = json.is_object() && json.size() == 3 && json.contains("dtype") &&
                        json.contains("shape") && json.contains("data_offsets");
  if (!complete) {
    return InvalidAt(path, "tensor '", name,
                     "' has other members; must have dtype, shape and data_offsets only");
  }
  std::optional<Dtype> dtype = DtypeOf(json["dtype"]);
  std::string other_type;
  if (!dtype.has_value() && other_types == OtherTypes::kAccept) {
    dtype = DtypeOfSize(json["dtype"]);
    if (dtype.has_value()) other_type = json["dtype"].get<std::string>();
  }
  if (!dtype.has_value()) {
    return InvalidAt(path, "tensor '", name, "' has another dtype; must be F64, F32, F16 or BF16");
  }
  const auto shape = NumbersOf(json["shape"], kMaxTensorRank);
  if (!shape.has_value()) {
    return InvalidAt(path, "tensor '", name, "' has no shape; must be at most ", kMaxTensorRank,
                     " whole numbers");
  }
  const auto offsets = NumbersOf(json["data_offsets"], 2);
  if (!offsets.has_value() || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1] ||
      (*offsets)[1] > data_size) {
    return InvalidAt(path, "tensor '", name,
                     "' lies outside the file; data_offsets must be in [0, ", data_size, "]");
  }
  NamedTensor tensor{
      name, {*dtype, *shape, {}}, (*offsets)[0], (*offsets)[1] - (*offsets)[0], other_type};
  PHASOR_ASSIGN_OR_RETURN(const int64_t bytes, DenseBytes(tensor.tensor, path));
  if (bytes == tensor.data_bytes) return tensor;
  return InvalidAt(path, "tensor '", name, "' has ", tensor.data_bytes,
                   " bytes; must have its shape's ", bytes);
}

absl::Status CheckMetadata(const SortedJson& json, std::string_view path) {
  const bool texts =
      json.is_object() &&
      std::all_of(json.begin(), json.end(), [](const SortedJson& v) { return v.is_string(); });
  if (texts) return absl::OkStatus();
  return InvalidAt(path, kMetadata, " is no object of strings; must be one");
}

// Sorts the tensors by offset. They must follow one another without gaps from 0 to the end.
absl::Status CheckCoverage(int64_t data_size, std::string_view path,
                           std::vector<NamedTensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::pair(a.data_begin, a.data_bytes) < std::pair(b.data_begin, b.data_bytes);
  });
  int64_t end = 0;
  for (const NamedTensor& tensor : *tensors) {
    if (tensor.data_begin != end) {
      return InvalidAt(path, "tensor '", tensor.name, "' begins at ", tensor.data_begin,
                       "; must be where the one before ends (", end, ")");
    }
    end += tensor.data_bytes;
  }
  if (end == data_size) return absl::OkStatus();
  return InvalidAt(path, data_size, " bytes of data; must be the tensors' ", end);
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ParseSafetensorsHeader(std::string_view start,
                                                                int64_t file_bytes,
                                                                std::string_view path,
                                                                OtherTypes other_types) {
  if (start.size() < kLengthBytes)
    return InvalidAt(path, "is too short; must be a .safetensors file");
  uint64_t text_bytes = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    text_bytes = text_bytes << 8 | static_cast<uint8_t>(start[i]);
  }
  if (text_bytes > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return InvalidAt(path, "header of ", text_bytes, " bytes; must be at most ",
                     kMaxSafetensorsHeaderBytes);
  }
  if (text_bytes > start.size() - kLengthBytes)
    return InvalidAt(path, "ends in its header; must be a whole file");
  const SortedJson json = ParseObject(start.substr(kLengthBytes, text_bytes));
  if (json.is_discarded())
    return InvalidAt(
        path,
        "the header is not a JSON object, or has a key twice; must be one, with each key once");

  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(text_bytes);
  const int64_t data_size = file_bytes - data_begin;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      PHASOR_RETURN_IF_ERROR(CheckMetadata(value, path));
      continue;
    }
    PHASOR_ASSIGN_OR_RETURN(NamedTensor tensor,
                            TensorOf(name, value, data_size, other_types, path));
    tensors.push_back(std::move(tensor));
  }
  PHASOR_RETURN_IF_ERROR(CheckCoverage(data_size, path, &tensors));
  for (NamedTensor& tensor : tensors) tensor.data_begin += data_begin;
  return tensors;
}

std::string FormatSafetensorsHeader(std::string_view name, const TensorDesc& tensor) {
  int64_t bytes = SizeOf(tensor.dtype);
  for (const int64_t extent : tensor.shape) bytes *= extent;
  const SortedJson json = {{std::string(name),
                            {{"dtype", std::string(NameOf(tensor.dtype))},
                             {"shape", tensor.shape},
                             {"data_offsets", {0, bytes}}}}};
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  std::string header;
  for (int i = 0; i < kLengthBytes; ++i) header.push_back(static_cast<char>(text.size() >> 8 * i));
  return header + text;
}

}  // namespace phasor
