// SPDX-License-Identifier: Apache-2.0
// Walks a state file from front to back. Nothing is allocated before the file is known to have it.
#include "client/cli/cache/llama_state.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

constexpr uint32_t kSessionMagic = 0x6767736e;   // "ggsn", LLAMA_SESSION_MAGIC
constexpr uint32_t kSequenceMagic = 0x67677371;  // "ggsq", LLAMA_STATE_SEQ_MAGIC
constexpr uint32_t kDataMagic = 0xaf143cd8;      // of llama_state_seq_get_data
// The oldest versions that are read. The next ones say the Hadamard transform.
constexpr uint32_t kSessionVersion = 10;
constexpr uint32_t kSequenceVersion = 3;
constexpr uint32_t kMaxStreams = 256;  // LLAMA_MAX_SEQ
constexpr uint32_t kMaxStateLayers = 512;
constexpr uint32_t kMaxArchitecture = 256;  // bytes of its name
constexpr int32_t kMaxGgmlType = 64;
constexpr uint32_t kMaxHadamard = 1 << 16;

// ggml_type of keys, and its code here.
constexpr std::pair<int32_t, KeyCode> kGgmlTypes[] = {
    {0, KeyCode::kFloat32}, {1, KeyCode::kFloat16}, {2, KeyCode::kQ4_0}, {3, KeyCode::kQ4_1},
    {6, KeyCode::kQ5_0},    {7, KeyCode::kQ5_1},    {8, KeyCode::kQ8_0}, {30, KeyCode::kBFloat16}};

// Reads values from front to back, never beyond the end. Threads: one thread at a time.
class Cursor {
 public:
  explicit Cursor(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  int64_t at() const { return at_; }
  void GoTo(int64_t at) { at_ = at; }
  int64_t left() const { return static_cast<int64_t>(bytes_.size()) - at_; }

  template <typename T>
  bool Take(T* value) {
    if (left() < static_cast<int64_t>(sizeof *value)) return false;
    std::memcpy(value, bytes_.data() + at_, sizeof *value);
    at_ += static_cast<int64_t>(sizeof *value);
    return true;
  }
  // `count` pieces of `bytes` each.
  bool Skip(uint64_t count, uint64_t bytes) {
    if (bytes != 0 && count > static_cast<uint64_t>(left()) / bytes) return false;
    at_ += static_cast<int64_t>(count * bytes);
    return true;
  }
  bool TakeText(uint32_t bytes, std::string* text) {
    if (left() < static_cast<int64_t>(bytes)) return false;
    text->assign(reinterpret_cast<const char*>(bytes_.data() + at_), bytes);
    at_ += bytes;
    return true;
  }

 private:
  const absl::Span<const std::byte> bytes_;
  int64_t at_ = 0;
};

// A stream: the cells of one or more sequences, and their keys.
struct Stream {
  int64_t cells = 0;
  std::vector<int32_t> positions;                      // of every cell
  std::vector<std::pair<int32_t, int32_t>> sequences;  // and its cell
  std::vector<LlamaKeys> layers;
  std::optional<int64_t> hadamard;
};

// What a file does not say of its form.
struct StateForm {
  // What every cell has beside its position and sequences. Only M-RoPE and a few others have any:
  // x, y and a token; until 2026 x and y.
  int64_t extra_bytes = 0;
  bool says_hadamard = false;
};

// Reads the part of a file that llama_memory_i::state_write wrote. Threads: one thread at a time.
class StateReader {
 public:
  StateReader(Cursor cursor, StateForm form, std::string_view path)
      : cursor_(cursor), form_(form), path_(path) {}

  // Reads parts up to the end, or up to what is none. The error of the first part is in error().
  std::vector<std::vector<Stream>> Read() {
    std::vector<std::vector<Stream>> parts;
    while (cursor_.left() > 0) {
      const int64_t begin = cursor_.at();
      std::vector<Stream> streams;
      const absl::Status status = ReadPart(&streams);
      if (!status.ok()) {
        if (parts.empty()) error_ = status;
        cursor_.GoTo(begin);
        return parts;
      }
      parts.push_back(std::move(streams));
    }
    if (parts.empty()) error_ = Ends("before its cells");
    return parts;
  }

  const absl::Status& error() const { return error_; }
  // Whether the cells were read, so that an error is about what follows them.
  bool read_cells() const { return read_cells_; }
  int64_t left() const { return cursor_.left(); }

 private:
  absl::Status Ends(std::string_view where) const {
    return InvalidAt(path_, "ends ", where, "; must be a whole file");
  }

  absl::Status ReadPart(std::vector<Stream>* streams) {
    uint32_t count = 0;
    if (!cursor_.Take(&count)) return Ends("before its streams");
    if (count < 1 || count > kMaxStreams) {
      return InvalidAt(path_, count, " streams; must be in [1, ", kMaxStreams, "]");
    }
    for (uint32_t s = 0; s < count; ++s) {
      PHASOR_RETURN_IF_ERROR(ReadStream(&streams->emplace_back()));
    }
    return absl::OkStatus();
  }

  absl::Status ReadStream(Stream* stream) {
    uint32_t cells = 0;
    if (!cursor_.Take(&cells)) return Ends("before its cells");
    stream->cells = cells;
    if (cells == 0) return absl::OkStatus();
    PHASOR_RETURN_IF_ERROR(ReadCells(stream));
    uint32_t transposed = 0, layers = 0;
    if (!cursor_.Take(&transposed) || !cursor_.Take(&layers)) return Ends("before its keys");
    if (transposed > 1 || layers < 1 || layers > kMaxStateLayers) {
      return InvalidAt(path_, layers, " layers after the cells; must be in [1, ", kMaxStateLayers,
                       "]");
    }
    if (form_.says_hadamard) PHASOR_RETURN_IF_ERROR(ReadHadamard(stream));
    read_cells_ = true;
    for (uint32_t i = 0; i < layers; ++i) {
      PHASOR_RETURN_IF_ERROR(ReadKeys(stream, i));
    }
    // A cache of MLA has no values, and the file does not say it.
    const int64_t after_keys = cursor_.at();
    if (!SkipValues(*stream, layers, transposed == 1)) cursor_.GoTo(after_keys);
    return absl::OkStatus();
  }

  absl::Status ReadCells(Stream* stream) {
    if (stream->cells > cursor_.left() / 8) return Ends("in its cells");
    stream->positions.reserve(static_cast<size_t>(stream->cells));
    for (int64_t i = 0; i < stream->cells; ++i) {
      int32_t position = 0;
      uint32_t sequences = 0;
      if (!cursor_.Take(&position) || !cursor_.Take(&sequences) ||
          !cursor_.Skip(1, static_cast<uint64_t>(form_.extra_bytes))) {
        return Ends("in its cells");
      }
      if (position < 0 || sequences > kMaxStreams) {
        return InvalidAt(path_, "cell ", i, " has position ", position, " and ", sequences,
                         " sequences; must have a position >= 0 and at most ", kMaxStreams);
      }
      stream->positions.push_back(position);
      for (uint32_t k = 0; k < sequences; ++k) {
        int32_t sequence = 0;
        if (!cursor_.Take(&sequence)) return Ends("in its cells");
        if (sequence < 0 || sequence >= static_cast<int32_t>(kMaxStreams)) {
          return InvalidAt(path_, "cell ", i, " is of sequence ", sequence, "; must be in [0, ",
                           kMaxStreams, ")");
        }
        stream->sequences.emplace_back(sequence, static_cast<int32_t>(i));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadHadamard(Stream* stream) {
    uint32_t keys = 0, values = 0;
    if (!cursor_.Take(&keys) || !cursor_.Take(&values)) return Ends("before its keys");
    for (const uint32_t lanes : {keys, values}) {
      if (lanes <= kMaxHadamard && (lanes & (lanes - 1)) == 0) continue;
      return InvalidAt(path_, "a Hadamard transform of ", lanes,
                       " lanes; must be 0 or a power of two");
    }
    stream->hadamard = keys;
    return absl::OkStatus();
  }

  absl::Status ReadKeys(Stream* stream, uint32_t layer) {
    int32_t type = 0;
    uint64_t row_bytes = 0;
    if (!cursor_.Take(&type) || !cursor_.Take(&row_bytes))
      return Ends("before the keys of a layer");
    const auto* const found = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                           [&](const auto& known) { return known.first == type; });
    if (found == std::end(kGgmlTypes)) {
      return absl::UnimplementedError(StrCat(path_, ": keys of layer ", layer, " have ggml type ",
                                             type,
                                             "; must be f32, f16, bf16, q8_0, q4_0, q4_1, q5_0 or "
                                             "q5_1"));
    }
    LlamaKeys keys{.code = found->second, .offset_bytes = cursor_.at()};
    const auto unit = static_cast<uint64_t>(UnitBytes(keys.code));
    if (row_bytes == 0 || row_bytes % unit != 0 || row_bytes > (uint64_t{1} << 32)) {
      return InvalidAt(path_, "keys of layer ", layer, " have rows of ", row_bytes,
                       " bytes; must be a multiple of ", unit);
    }
    keys.lanes = static_cast<int64_t>(row_bytes / unit) * UnitLanes(keys.code);
    if (!cursor_.Skip(static_cast<uint64_t>(stream->cells), row_bytes)) {
      return Ends(StrCat("in the keys of layer ", layer));
    }
    stream->layers.push_back(keys);
    return absl::OkStatus();
  }

  bool SkipValues(const Stream& stream, uint32_t layers, bool transposed) {
    const auto cells = static_cast<uint64_t>(stream.cells);
    for (uint32_t i = 0; i < layers; ++i) {
      int32_t type = 0;
      if (!cursor_.Take(&type) || type < 0 || type >= kMaxGgmlType) return false;
      if (!transposed) {
        uint64_t row_bytes = 0;
        if (!cursor_.Take(&row_bytes) || row_bytes == 0 || !cursor_.Skip(cells, row_bytes)) {
          return false;
        }
        continue;
      }
      uint32_t element_bytes = 0, rows = 0;
      if (!cursor_.Take(&element_bytes) || !cursor_.Take(&rows) || element_bytes == 0 ||
          element_bytes > 8 || rows == 0 || !cursor_.Skip(cells, uint64_t{element_bytes} * rows)) {
        return false;
      }
    }
    return true;
  }

  Cursor cursor_;
  const StateForm form_;
  const std::string_view path_;
  absl::Status error_;
  bool read_cells_ = false;
};

// What comes before the caches.
struct StateHead {
  std::string architecture;
  std::optional<bool> says_hadamard;  // not set: the file has no version
};

// INVALID_ARGUMENT: another version, or a truncated file.
absl::StatusOr<StateHead> ReadHead(Cursor* cursor, std::string_view path) {
  const auto ends = [&] { return InvalidAt(path, "ends in its head; must be a whole file"); };
  StateHead head;
  uint32_t magic = 0, version = 0, tokens = 0;
  if (!cursor->Take(&magic) || !cursor->Take(&version)) return ends();
  if (magic == kDataMagic) return head;  // `version` is the number of the sequence
  const uint32_t oldest = magic == kSessionMagic ? kSessionVersion : kSequenceVersion;
  if (version != oldest && version != oldest + 1) {
    return InvalidAt(path, "llama.cpp state of version ", version, "; must be ", oldest, " or ",
                     oldest + 1, ", as of 2026");
  }
  head.says_hadamard = version > oldest;
  if (!cursor->Take(&tokens) || !cursor->Skip(tokens, sizeof(int32_t))) return ends();
  if (magic == kSequenceMagic) return head;
  uint32_t length = 0;
  if (!cursor->Take(&length)) return ends();
  if (length > kMaxArchitecture) {
    return InvalidAt(path, "name of ", length, " bytes for the architecture; must be at most ",
                     kMaxArchitecture);
  }
  if (!cursor->TakeText(length, &head.architecture)) return ends();
  return head;
}

// The forms that a file can have, the most common one first.
std::vector<StateForm> FormsOf(std::optional<bool> says_hadamard) {
  std::vector<StateForm> forms;
  for (const bool says : {true, false}) {
    if (says_hadamard.value_or(says) != says) continue;
    for (const int64_t extra_bytes : {0, 12, 8}) forms.push_back({extra_bytes, says});
  }
  return forms;
}

// The cells of the sequence, by position.
void Select(const Stream& stream, std::optional<int64_t> sequence, LlamaPart* part) {
  part->cells = stream.cells;
  part->layers = stream.layers;
  part->hadamard = stream.hadamard;
  std::vector<int64_t> cells;
  if (stream.sequences.empty()) {  // all are of one
    cells.resize(static_cast<size_t>(stream.cells));
    std::iota(cells.begin(), cells.end(), int64_t{0});
  }
  for (const auto& [of, cell] : stream.sequences) {
    if (!sequence.has_value() || of == *sequence) cells.push_back(cell);
  }
  const auto position = [&](int64_t cell) { return stream.positions[static_cast<size_t>(cell)]; };
  std::sort(cells.begin(), cells.end(), [&](int64_t a, int64_t b) {
    return std::pair(position(a), a) < std::pair(position(b), b);
  });
  for (const int64_t cell : cells) part->positions.push_back(position(cell));
  part->slots = std::move(cells);
}

absl::Status CheckSequences(const std::vector<std::vector<Stream>>& parts,
                            std::optional<int64_t> sequence, std::string_view path) {
  std::set<int64_t> held;
  for (const std::vector<Stream>& part : parts) {
    for (const Stream& stream : part) {
      for (const auto& [of, cell] : stream.sequences) held.insert(of);
    }
  }
  if (!sequence.has_value() && held.size() > 1) {
    return InvalidAt(path, "holds sequences ", absl::StrJoin(held, ", "),
                     "; must be chosen with --sequence and --to-sequence");
  }
  if (sequence.has_value() && !held.empty() && held.count(*sequence) == 0) {
    return InvalidAt(path, "has no sequence ", *sequence, "; must be one of ",
                     absl::StrJoin(held, ", "));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLlamaState(absl::Span<const std::byte> file) {
  uint32_t magic = 0;
  return Cursor(file).Take(&magic) &&
         (magic == kSessionMagic || magic == kSequenceMagic || magic == kDataMagic);
}

absl::StatusOr<LlamaState> ParseLlamaState(absl::Span<const std::byte> file,
                                           std::optional<int64_t> sequence, std::string_view path) {
  Cursor cursor(file);
  PHASOR_ASSIGN_OR_RETURN(StateHead head, ReadHead(&cursor, path));
  LlamaState state{.architecture = std::move(head.architecture)};
  std::vector<std::vector<Stream>> parts;
  absl::Status error;
  bool read_cells = false;
  for (const StateForm form : FormsOf(head.says_hadamard)) {
    StateReader reader(cursor, form, path);
    std::vector<std::vector<Stream>> found = reader.Read();
    if (error.ok() || (reader.read_cells() && !read_cells)) error = reader.error();
    read_cells = read_cells || reader.read_cells();
    if (found.empty()) continue;
    if (parts.empty() || reader.left() < state.rest_bytes) {
      parts = std::move(found);
      state.rest_bytes = reader.left();
    }
    if (state.rest_bytes == 0) break;
  }
  if (parts.empty()) return error;
  PHASOR_RETURN_IF_ERROR(CheckSequences(parts, sequence, path));
  for (const std::vector<Stream>& streams : parts) {
    LlamaPart part;
    for (const Stream& stream : streams) {
      LlamaPart candidate;
      Select(stream, sequence, &candidate);
      if (!candidate.slots.empty()) part = std::move(candidate);
    }
    if (!part.slots.empty()) state.parts.push_back(std::move(part));
  }
  if (state.parts.empty()) return InvalidAt(path, "has no cells; must have tokens of a sequence");
  return state;
}

}  // namespace phasor::cli
