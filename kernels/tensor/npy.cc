// SPDX-License-Identifier: Apache-2.0
// Reads and writes the Python dictionary in the header of a .npy file.
#include "kernels/tensor/npy.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxRank = 32;

// Reads the dictionary literal of a header from left to right. Threads: one thread at a time.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  // Skips blanks, then skips `token` if it comes next and says whether it did.
  bool Take(std::string_view token) {
    const size_t blanks = rest_.find_first_not_of(" \t\n");
    rest_.remove_prefix(std::min(blanks, rest_.size()));
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool AtEnd() { return Take("") && rest_.empty(); }

  std::optional<std::string_view> TakeString() {
    for (std::string_view quote : {"'", "\""}) {
      if (!Take(quote)) continue;
      const size_t end = rest_.find(quote);
      if (end == std::string_view::npos) return std::nullopt;
      const std::string_view text = rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      return text;
    }
    return std::nullopt;
  }

  std::optional<bool> TakeBool() {
    if (Take("True")) return true;
    if (Take("False")) return false;
    return std::nullopt;
  }

  // Reads "(3, 4)", "(3,)" or "()".
  std::optional<std::vector<int64_t>> TakeTuple() {
    std::vector<int64_t> values;
    if (!Take("(")) return std::nullopt;
    while (!Take(")")) {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc() || values.size() == kMaxRank) return std::nullopt;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      values.push_back(value);
      if (!Take(",") && !rest_.starts_with(")")) return std::nullopt;
    }
    return values;
  }

 private:
  std::string_view rest_;
};

// The three entries of a header's dictionary; nullopt until they are read.
struct Dictionary {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// Reads the three entries: each once, in any order.
std::optional<Dictionary> ParseDictionary(std::string_view text) {
  Scanner scanner(text);
  Dictionary dictionary;
  if (!scanner.Take("{")) return std::nullopt;
  while (!scanner.Take("}")) {
    const auto key = scanner.TakeString();
    if (!key.has_value() || !scanner.Take(":")) return std::nullopt;
    if (*key == "descr" && !dictionary.descr) {
      if (!(dictionary.descr = scanner.TakeString())) return std::nullopt;
    } else if (*key == "fortran_order" && !dictionary.fortran_order) {
      if (!(dictionary.fortran_order = scanner.TakeBool())) return std::nullopt;
    } else if (*key == "shape" && !dictionary.shape) {
      if (!(dictionary.shape = scanner.TakeTuple())) return std::nullopt;
    } else {
      return std::nullopt;
    }
    scanner.Take(",");
  }
  const bool complete = dictionary.descr && dictionary.fortran_order && dictionary.shape;
  if (!complete || !scanner.AtEnd()) return std::nullopt;
  return dictionary;
}

absl::StatusOr<Dtype> ParseDescr(std::string_view descr, bool u2_as_bf16, bool bytes,
                                 std::string_view path) {
  if (descr.starts_with('>')) return InvalidAt(path, "big endian elements; must be little endian");
  if (descr == "<f2") return Dtype::kFloat16;
  if (descr == "<f4") return Dtype::kFloat32;
  if (descr == "<f8") return Dtype::kFloat64;
  if (descr == "<i4") return Dtype::kInt32;
  if (descr == "<i8") return Dtype::kInt64;
  if (descr == "<u2" && u2_as_bf16) return Dtype::kBFloat16;
  if (bytes && (descr == "|u1" || descr == "|i1")) return Dtype::kFloat8E4M3;
  if (descr == "<u2") {
    return InvalidAt(
        path,
        "elements of type u2; must be f2, f4, f8, i4 or i8 (bits of bfloat16: --u2-as-bf16, or "
        "a .safetensors file)");
  }
  return InvalidAt(path, "elements of type '", descr, "'; must be f2, f4, f8, i4, i8 or u2");
}

std::string_view Descr(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return "<f8";
    case Dtype::kFloat32:
      return "<f4";
    case Dtype::kFloat16:
      return "<f2";
    case Dtype::kBFloat16:
      return "<u2";
    case Dtype::kInt32:
      return "<i4";
    case Dtype::kInt64:
      return "<i8";
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      return "|u1";
  }
  return "?";
}

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view start, int64_t file_bytes,
                                         bool u2_as_bf16, std::string_view path, bool bytes) {
  if (start.size() < 10 || !start.starts_with(kMagic)) {
    return InvalidAt(path, "is no .npy file; must begin with \\x93NUMPY");
  }
  const int version = static_cast<uint8_t>(start[6]);
  if (version < 1 || version > 3) {
    return InvalidAt(path, "format version ", version, "; must be 1, 2 or 3");
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const int64_t text_begin = static_cast<int64_t>(8 + length_bytes);
  if (static_cast<int64_t>(start.size()) < text_begin)
    return InvalidAt(path, "ends in its header; must be a whole file");
  const int64_t text_bytes = LittleEndian(start.substr(8, length_bytes));
  if (text_bytes > kMaxNpyHeaderBytes) {
    return InvalidAt(path, "header of ", text_bytes, " bytes; must be at most ",
                     kMaxNpyHeaderBytes);
  }
  NpyHeader header;
  header.data_begin = text_begin + text_bytes;
  if (header.data_begin > static_cast<int64_t>(start.size())) {
    return InvalidAt(path, "ends in its header; must be a whole file");
  }
  const auto dictionary = ParseDictionary(
      start.substr(static_cast<size_t>(text_begin), static_cast<size_t>(text_bytes)));
  if (!dictionary.has_value()) {
    return InvalidAt(path, "header cannot be read; must be {'descr', 'fortran_order', 'shape'}");
  }
  if (*dictionary->fortran_order) return InvalidAt(path, "Fortran order; must be C order");
  PHASOR_ASSIGN_OR_RETURN(header.tensor.dtype,
                          ParseDescr(*dictionary->descr, u2_as_bf16, bytes, path));
  header.tensor.shape = *dictionary->shape;
  PHASOR_ASSIGN_OR_RETURN(header.data_bytes, DenseBytes(header.tensor, path));
  if (header.data_bytes > file_bytes - header.data_begin) {
    return InvalidAt(path, file_bytes - header.data_begin, " bytes of data; must be the shape's ",
                     header.data_bytes);
  }
  return header;
}

std::string FormatNpyHeader(const TensorDesc& tensor) {
  const bool one = tensor.shape.size() == 1;
  std::string text =
      StrCat("{'descr': '", Descr(tensor.dtype), "', 'fortran_order': False, 'shape': (",
             absl::StrJoin(tensor.shape, ", "), one ? ",), }" : "), }");
  constexpr size_t kPrefix = 10;  // bytes before the text in version 1
  text.resize((kPrefix + text.size() + 1 + 63) / 64 * 64 - kPrefix - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size()), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace phasor
