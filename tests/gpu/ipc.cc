// SPDX-License-Identifier: Apache-2.0
// gpu_ipc ADDRESS [TRIGGER]: exports memory of a GPU to a phasor-server with --backend=cuda and
// --shared-memory on this host, and compares its answers with those of the CPU in this process.
// With TRIGGER, it makes one call in place while that file exists, at which provoke.cc loses the
// server's device. Exit status: 1 something is wrong, 4 this machine cannot export memory.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "client/client.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr int kCannotExport = 4;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kHeads = 8, kDim = 128;
using Bytes = std::vector<std::byte>;

[[noreturn]] void Die(const std::string& what, int status = 1) {
  std::cerr << "gpu_ipc: " << what << '\n';
  std::exit(status);
}

void Check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) Die(StrCat(what, ": ", cudaGetErrorString(error)));
}

template <typename T>
T Must(absl::StatusOr<T> value, std::string_view what) {
  if (!value.ok()) Die(StrCat(what, ": ", value.status().ToString()));
  return *std::move(value);
}

// As CudaIpcAllocation wants it.
std::string UuidOfDevice() {
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, 0), "the device's properties");
  const std::string digits = absl::BytesToHexString(
      {reinterpret_cast<const char*>(properties.uuid.bytes), sizeof properties.uuid.bytes});
  return StrCat("GPU-", digits.substr(0, 8), "-", digits.substr(8, 4), "-", digits.substr(12, 4),
                "-", digits.substr(16, 4), "-", digits.substr(20));
}

// Random bfloat16 numbers of moderate size.
Bytes RandomBytes(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(static_cast<size_t>(count));
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto bits = static_cast<uint16_t>((random() & 0x83FF) | 0x3C00);
    std::memcpy(&bytes[i], &bits, sizeof bits);
  }
  return bytes;
}

// Device memory of this process, with the bytes that it should hold. Owns it.
class Exported {
 public:
  Exported(int64_t bytes, uint64_t seed) : want(RandomBytes(bytes, seed)) {
    Check(cudaMalloc(&memory_, want.size()), "allocate");
    if (const auto error = cudaIpcGetMemHandle(&handle_, memory_); error != cudaSuccess) {
      Die(StrCat("this machine exports no memory: ", cudaGetErrorString(error)), kCannotExport);
    }
    Write();
  }
  ~Exported() { cudaFree(memory_); }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  absl::StatusOr<DeviceMemory> Register(const Client& client, int64_t offset, int64_t size) const {
    return client.RegisterDeviceMemory(
        {.handle = std::string(handle_.reserved, sizeof handle_.reserved),
         .offset_bytes = offset,
         .size_bytes = size,
         .device_uuid = UuidOfDevice()});
  }
  // Copies `want` to the device.
  void Write() {
    Check(cudaMemcpy(memory_, want.data(), want.size(), cudaMemcpyHostToDevice), "upload");
    Check(cudaDeviceSynchronize(), "wait");
  }
  // Dies unless every byte on the device is as wanted.
  void Compare(std::string_view what) const {
    Bytes got(want.size());
    Check(cudaMemcpy(got.data(), memory_, got.size(), cudaMemcpyDeviceToHost), "download");
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != want[i]) Die(StrCat(what, ": byte ", i, " of ", got.size(), " is wrong"));
    }
  }

  Bytes want;

 private:
  void* memory_ = nullptr;
  cudaIpcMemHandle_t handle_ = {};
};

struct Clients {
  Client server, here;
};

TensorDesc HeadsOf(int64_t tokens) { return {Dtype::kBFloat16, {tokens, kHeads, kDim}, {}}; }
int64_t BytesOf(int64_t tokens) { return tokens * kHeads * kDim * 2; }
MutableTensorView HostView(Bytes& bytes, int64_t at, const TensorDesc& desc) {
  return {desc, bytes.data() + at, static_cast<int64_t>(bytes.size()) - at};
}

RopeCall CallOf(int64_t tokens, RopeTensor tensor) {
  return {.spec = {.preset = "llama-3", .head_dim = kDim},
          .positions = IntegerRange{.start = 100000, .count = tokens},
          .tensors = {std::move(tensor)}};
}

// Makes a call on the server and the same on the CPU. `backend` should have computed the former.
void RunBoth(const Clients& clients, const RopeCall& there, const RopeCall& here,
             std::string_view backend, std::string_view what) {
  const RunInfo info = Must(clients.server.ApplyRoPE(there), what);
  if (info.backend != backend) Die(StrCat(what, ": computed by ", info.backend, ", not ", backend));
  Must(clients.here.ApplyRoPE(here), what);
}

void CheckInPlace(const Clients& clients, Exported& memory, int64_t offset, int64_t tokens,
                  std::string_view what) {
  DeviceMemory region = Must(memory.Register(clients.server, offset, BytesOf(tokens)), what);
  RunBoth(clients, CallOf(tokens, region.View(HeadsOf(tokens))),
          CallOf(tokens, HostView(memory.want, offset, HeadsOf(tokens))), "cuda", what);
  if (const absl::Status released = region.Release(); !released.ok()) {
    Die(StrCat(what, ": ", released.ToString()));
  }
  memory.Compare(what);
}

void CheckInteriorOffsets(const Clients& clients) {
  Exported memory(16 * kMiB, 1);
  for (const int64_t offset : {int64_t{0}, kMiB + 512, 16 * kMiB - BytesOf(70)}) {
    CheckInPlace(clients, memory, offset, 70, StrCat("70 tokens at byte ", offset, " of 16 MiB"));
  }
  const auto beyond = memory.Register(clients.server, 1, 16 * kMiB);
  if (beyond.status().code() != absl::StatusCode::kInvalidArgument) {
    Die(StrCat("a region beyond its allocation: ", beyond.status().ToString()));
  }
}

// cudaMalloc cuts such allocations out of blocks of 2 MiB.
void CheckSmallAllocations(const Clients& clients) {
  constexpr int64_t kBytes = 64 << 10;
  Exported first(kBytes, 2), second(kBytes, 3), third(kBytes, 4);
  std::vector<DeviceMemory> regions;  // all open at once
  for (const Exported* const memory : {&first, &second, &third}) {
    regions.push_back(Must(memory->Register(clients.server, 0, kBytes), "64 KiB"));
  }
  for (Exported* const memory : {&second, &first, &third}) {
    for (const int64_t offset : {0, 4096}) {
      CheckInPlace(clients, *memory, offset, 8, StrCat("8 tokens at byte ", offset, " of 64 KiB"));
    }
    for (Exported* const any : {&first, &second, &third}) any->Compare("a neighbour of 64 KiB");
  }
}

void CheckPages(const Clients& clients) {
  constexpr int64_t kTokens = 200, kPages = 40, kPageSize = 16;
  const TensorDesc cache{Dtype::kBFloat16, {kPages, kPageSize, kHeads, kDim}, {}};
  const int64_t cache_bytes = BytesOf(kPages * kPageSize), tokens_bytes = BytesOf(kTokens);
  Exported memory(2 * cache_bytes + 2 * tokens_bytes, 5);
  std::vector<int64_t> slots(kTokens);
  for (int64_t t = 0; t < kTokens; ++t)
    slots[static_cast<size_t>(t)] = t * 7 % (kPages * kPageSize);
  slots[3] = -1;
  const DeviceMemory region =
      Must(memory.Register(clients.server, 0, static_cast<int64_t>(memory.want.size())), "pages");
  const auto call = [&](const auto& view) {
    const int64_t keys = 2 * cache_bytes, values = keys + tokens_bytes;
    RopeCall made = CallOf(kTokens, RopeTensor(view(keys, HeadsOf(kTokens)), view(0, cache)));
    made.paged =
        PagedWrite{.values = RopeTensor(view(values, HeadsOf(kTokens)), view(cache_bytes, cache)),
                   .slot_mapping = View(slots, {kTokens})};
    return made;
  };
  const auto there = [&](int64_t at, const TensorDesc& desc) { return region.View(desc, at); };
  const auto here = [&](int64_t at, const TensorDesc& desc) {
    return HostView(memory.want, at, desc);
  };
  RunBoth(clients, call(there), call(here), "cuda", "pages");
  memory.Compare("pages");
}

// No kernel reads elements at odd addresses, so the CPU computes on a copy.
void CheckHostCopies(const Clients& clients) {
  constexpr int64_t kTokens = 100;
  Exported memory(4 * kMiB, 6);
  const DeviceMemory region = Must(memory.Register(clients.server, 0, 4 * kMiB), "host copies");
  Bytes odd(memory.want.begin() + 1, memory.want.end());
  RunBoth(
      clients,
      CallOf(kTokens, {region.View(HeadsOf(kTokens), 1), region.View(HeadsOf(kTokens), 2 * kMiB)}),
      CallOf(kTokens, {HostView(odd, 0, HeadsOf(kTokens)),
                       HostView(memory.want, 2 * kMiB, HeadsOf(kTokens))}),
      "cpu", "host copies");
  memory.Compare("host copies");
}

// A tensor in this process' memory beside one on the device.
void CheckMixedMemory(const Clients& clients) {
  constexpr int64_t kTokens = 2000;
  Exported memory(BytesOf(kTokens), 7);
  const DeviceMemory region = Must(memory.Register(clients.server, 0, BytesOf(kTokens)), "mixed");
  Bytes mine = memory.want, theirs = memory.want;
  RopeCall there = CallOf(kTokens, region.View(HeadsOf(kTokens)));
  there.tensors.emplace_back(HostView(theirs, 0, HeadsOf(kTokens)));
  RopeCall here = CallOf(kTokens, HostView(memory.want, 0, HeadsOf(kTokens)));
  here.tensors.emplace_back(HostView(mine, 0, HeadsOf(kTokens)));
  RunBoth(clients, there, here, "cuda", "memory of both kinds");
  memory.Compare("memory of both kinds");
  if (mine != theirs) Die("memory of both kinds: this process' tensor is wrong");
}

// Copies, moves and compares keys of two layers, with the positions of their slots.
void CheckMovesOfKeys(const Clients& clients) {
  constexpr int64_t kPages = 24, kPageSize = 16, kTokens = 150;
  const int64_t layer = BytesOf(kPages * kPageSize), positions = 2 * layer;
  Exported memory(positions + 4 * kPages * kPageSize, 9);
  KeyRun run{.first = 3, .count = kTokens, .from = 70000, .to = 11};
  for (int64_t page = 0; page < 10; ++page) run.block_table.push_back(page * 7 % 12);
  for (uint32_t t = 0; t < kTokens; ++t) {
    const int64_t place = run.first + t;
    const int64_t slot =
        run.block_table[static_cast<size_t>(place / kPageSize)] * kPageSize + place % kPageSize;
    const uint32_t position = 70000 + t;
    std::memcpy(&memory.want[static_cast<size_t>(positions + 4 * slot)], &position, 4);
  }
  memory.Write();
  const DeviceMemory region =
      Must(memory.Register(clients.server, 0, static_cast<int64_t>(memory.want.size())), "keys");
  for (const MoveMode mode : {MoveMode::kCopyOnWrite, MoveMode::kCompare, MoveMode::kMove}) {
    const auto run_on = [&](const Client& client, KeyPool pool) {
      MoveCall call{.pools = {std::move(pool)}, .mode = mode};
      call.layouts = {{.name = "nhd",
                       .pages = kPages,
                       .page_size = kPageSize,
                       .heads = kHeads,
                       .head_dim = kDim}};
      call.specs = {{.spec = {.preset = "llama-3", .head_dim = kDim}}};
      call.layers = {{.spec = 0}, {.spec = 0, .place = {0, layer}}};
      KeyRun moved = run;
      for (const int64_t page : run.block_table) {
        if (mode != MoveMode::kMove) moved.to_block_table.push_back(page + 12);
      }
      call.groups = {{.runs = {moved}, .slot_positions = KeyPlace{0, positions}}};
      return Must(client.MoveKeys(call), "keys");
    };
    const MoveResult there = run_on(clients.server, region.Pool());
    const MoveResult here = run_on(clients.here, absl::MakeSpan(memory.want));
    if (there.info.backend != "cuda") Die(StrCat("keys: moved by ", there.info.backend));
    for (size_t i = 0; i < here.differences.size(); ++i) {
      const KeyDifference &got = there.differences[i], &want = here.differences[i];
      if (got.bad_rows != 0 || got.max_abs != want.max_abs || got.rms != want.rms ||
          got.reference_rms != want.reference_rms) {
        Die(StrCat("keys: layer ", i, " differs by ", got.rms, ", here ", want.rms));
      }
    }
    memory.Compare("keys");
  }
}

// The call must be ABORTED: in place, nobody knows what was written.
void LoseTheDevice(const Clients& clients, const std::string& trigger) {
  Exported memory(BytesOf(70), 8);
  const DeviceMemory region = Must(memory.Register(clients.server, 0, BytesOf(70)), "region");
  std::ofstream(trigger) << "now\n";
  const auto info = clients.server.ApplyRoPE(CallOf(70, region.View(HeadsOf(70))));
  std::remove(trigger.c_str());
  if (info.ok()) Die("the server's device was not lost", kCannotExport);
  if (info.status().code() != absl::StatusCode::kAborted) {
    Die(StrCat("the call in place is not ABORTED: ", info.status().ToString()));
  }
  std::cout << "the call in place: " << info.status() << '\n';
}

int Main(int argc, char** argv) {
  if (argc != 2 && argc != 3) Die("usage: gpu_ipc ADDRESS [TRIGGER]", 2);
  const Clients clients{Must(Client::Connect(argv[1]), "connect"),
                        Must(Client::Connect("inproc:"), "connect in process")};
  if (argc == 3) {
    LoseTheDevice(clients, argv[2]);
    return 0;
  }
  CheckInteriorOffsets(clients);
  CheckSmallAllocations(clients);
  CheckPages(clients);
  CheckHostCopies(clients);
  CheckMixedMemory(clients);
  CheckMovesOfKeys(clients);
  std::cout << "interior offsets, allocations of 64 KiB, pages, host copies, memory of both kinds "
               "and moves of keys have the CPU's bytes\n";
  return 0;
}

}  // namespace
}  // namespace phasor

int main(int argc, char** argv) { return phasor::Main(argc, argv); }
