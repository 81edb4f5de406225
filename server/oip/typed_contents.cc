// SPDX-License-Identifier: Apache-2.0
// Converts each kind of typed contents to bytes and checks the number of elements.
#include "server/oip/typed_contents.h"

#include <cstring>

#include "kernels/base/invalid.h"
#include "server/oip/datatype.h"

namespace phasor::oip {
namespace {

template <typename T>
std::vector<std::byte> Copied(const google::protobuf::RepeatedField<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

int64_t CountAll(const inference::InferTensorContents& c) {
  return int64_t{c.bool_contents_size()} + c.int_contents_size() + c.int64_contents_size() +
         c.uint_contents_size() + c.uint64_contents_size() + c.fp32_contents_size() +
         c.fp64_contents_size() + c.bytes_contents_size();
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> BytesOf(const inference::InferTensorContents& contents,
                                               Dtype dtype, int64_t elements,
                                               const std::string& path) {
  std::vector<std::byte> bytes;
  std::string field;
  switch (dtype) {
    case Dtype::kInt32:
      bytes = Copied(contents.int_contents());
      field = "int_contents";
      break;
    case Dtype::kInt64:
      bytes = Copied(contents.int64_contents());
      field = "int64_contents";
      break;
    case Dtype::kFloat32:
      bytes = Copied(contents.fp32_contents());
      field = "fp32_contents";
      break;
    case Dtype::kFloat64:
      bytes = Copied(contents.fp64_contents());
      field = "fp64_contents";
      break;
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      return Invalid(path, ".contents: set for ", DatatypeOf(dtype),
                     "; must be raw bytes in raw_input_contents");
  }
  const int64_t found = static_cast<int64_t>(bytes.size()) / SizeOf(dtype);
  const int64_t others = CountAll(contents) - found;
  if (found == elements && others == 0) return bytes;
  return Invalid(path, ".contents: ", found, " elements in ", field, " and ", others,
                 " elsewhere; must be ", elements, " in ", field, " for ", DatatypeOf(dtype));
}

}  // namespace phasor::oip
