// SPDX-License-Identifier: Apache-2.0
// Writes states as llama.cpp does (llama_kv_cache::state_write of 0c1e57098; with `hadamard`, of
// v0.6.0), in the plainest way.
#ifndef PHASOR_TESTS_SUPPORT_LLAMA_STATES_H_
#define PHASOR_TESTS_SUPPORT_LLAMA_STATES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace phasor::testing {

// Appends the bytes of a value.
template <typename T>
void Put(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct LlamaCell {
  int32_t position = 0;
  std::vector<int32_t> sequences = {0};
};

// A stream of a cache.
struct LlamaStream {
  std::vector<LlamaCell> cells;
  int32_t type = 1;  // ggml_type of keys; 1: f16
  uint64_t row_bytes = 8;
  int layers = 2;
  bool values = true;
  bool transposed = false;
  std::string extra = {};  // of every cell, behind its number of sequences
  // Of version 4: lanes of the Hadamard blocks of keys.
  std::optional<uint32_t> hadamard = {};
};

inline void PutStream(const LlamaStream& stream, std::string* out) {
  Put(static_cast<uint32_t>(stream.cells.size()), out);
  if (stream.cells.empty()) return;
  for (const LlamaCell& cell : stream.cells) {
    Put(cell.position, out);
    Put(static_cast<uint32_t>(cell.sequences.size()), out);
    *out += stream.extra;
    for (const int32_t sequence : cell.sequences) Put(sequence, out);
  }
  Put(uint32_t{stream.transposed}, out);
  Put(static_cast<uint32_t>(stream.layers), out);
  if (stream.hadamard.has_value()) {
    Put(*stream.hadamard, out);
    Put(uint32_t{0}, out);  // of values
  }
  for (int i = 0; i < stream.layers; ++i) {
    Put(stream.type, out);
    Put(stream.row_bytes, out);
    out->append(stream.cells.size() * stream.row_bytes, static_cast<char>('a' + i));
  }
  for (int i = 0; i < stream.layers && stream.values; ++i) {
    Put(int32_t{1}, out);
    if (stream.transposed) {
      Put(uint32_t{2}, out);
      Put(uint32_t{3}, out);
    } else {
      Put(uint64_t{6}, out);
    }
    out->append(stream.cells.size() * 6, 'v');
  }
}

inline std::string LlamaCache(const std::vector<LlamaStream>& streams) {
  std::string out;
  Put(static_cast<uint32_t>(streams.size()), &out);
  for (const LlamaStream& stream : streams) PutStream(stream, &out);
  return out;
}

// llama_state_seq_save_file with two tokens of a prompt.
inline std::string LlamaSequenceFile(const std::string& caches, uint32_t version = 3) {
  std::string out;
  for (const uint32_t value : {0x67677371u, version, 2u, 11u, 12u}) Put(value, &out);
  return out + caches;
}

// llama_state_save_file.
inline std::string LlamaSessionFile(const std::string& caches, const std::string& architecture,
                                    uint32_t version = 10) {
  std::string out;
  for (const uint32_t value : {0x6767736eu, version, 1u, 11u}) Put(value, &out);
  Put(static_cast<uint32_t>(architecture.size()), &out);
  return out + architecture + caches;
}

// llama_state_seq_get_data.
inline std::string LlamaSequenceData(const std::string& caches) {
  std::string out;
  for (const uint32_t value : {0xaf143cd8u, 0u}) Put(value, &out);
  return out + caches;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_LLAMA_STATES_H_
