// SPDX-License-Identifier: Apache-2.0
// bench_instructions: small fixed workloads whose instructions count.py counts under callgrind.
//
//   bench_instructions          prints the compiler, then the names of the workloads
//   bench_instructions NAME     runs one: first unmeasured, then kRuns times inside phasor_measured
//   bench_instructions NAME N   runs one N times and prints the shortest time of a run
//
// Kernels run on AVX2, because Valgrind 3.19 knows no AVX-512. Everything runs on one thread.
#include <grpcpp/test/default_reactor_test_peer.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "bench/harness.h"
#include "bench/instructions/idle_driver.h"
#include "bench/kernels/jobs.h"
#include "bench/server/client_calls.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/request/move_keys.h"
#include "kernels/spec/config_json.h"
#include "proto/convert.h"
#include "server/api/service.h"
#include "server/base/clock.h"
#include "server/base/process.h"
#include "server/engine/plan_cache.h"
#include "server/grpc/call_context.h"
#include "server/memory/device_region_store.h"
#include "server/telemetry/metrics.h"

// callgrind counts from the entry of this function to its return.
extern "C" [[gnu::noipa]] void phasor_measured(const std::function<void()>& run) { run(); }

namespace phasor::bench {
namespace {

#define PHASOR_TEXT_OF(x) #x
#define PHASOR_TEXT(x) PHASOR_TEXT_OF(x)
#ifdef __clang__
constexpr char kCompiler[] = "Clang " PHASOR_TEXT(__clang_major__);
#else
constexpr char kCompiler[] = "GCC " PHASOR_TEXT(__GNUC__);
#endif

constexpr int kRuns = 10;
constexpr int kUnmeasuredRuns = 3;

// What one run does, and what has to be made anew before it, uncounted.
struct Workload {
  std::function<void()> run;
  std::function<void()> prepare = [] {};
};

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  if (!value.ok()) Die(value.status().ToString());
  return *std::move(value);
}

std::shared_ptr<Backend> MakeAvx2() {
  if (!absl::c_linear_search(cpu::RunnableTargets(), cpu::Target::kAvx2)) Die("no AVX2 here");
  return cpu::MakeCpuBackend({.target = cpu::Target::kAvx2, .threads = 1, .stream_bytes = 1 << 30});
}
Backend& Avx2() {
  static const auto& backend = *new std::shared_ptr<Backend>(MakeAvx2());
  return *backend;
}

// --- calls of the server, from the received bytes to the bytes to send
// ----------------------------

using Method = grpc::ServerUnaryReactor* (
    rpc::PositionEmbeddingServiceImpl::*)(grpc::CallbackServerContext*, const grpc::ByteBuffer*,
                                          grpc::ByteBuffer*);

// A GPU that takes no time, with memory of another process.
struct IdleDevice {
  cuda::CudaBackend backend{std::make_unique<IdleDriver>(), MakeAvx2(), {}};
  memory::DeviceRegionStore regions{backend.devices(), {.enabled = true}, Clock::Real()};
  const memory::DevicePlace place{.bytes = IdleDriver::kExportedBytes};
  const std::shared_ptr<const DeviceAllocation> allocation = ValueOrDie(backend.Open(place.handle));
};
IdleDevice& Device() {
  static auto& device = *new IdleDevice;
  return device;
}

// The parts of a server behind gRPC.
struct ServerParts {
  explicit ServerParts(Backend& runs, memory::Stores stores)
      : engine({.workers = 1, .observer = &metrics.engine}, &runs, Clock::Real()),
        service(&engine, {.max_message_bytes = 1 << 20,
                          .max_header_bytes = 1 << 20,
                          .max_batch_items = 64,
                          .memory = stores}) {}
  telemetry::Metrics metrics{std::vector<std::string>{}};
  engine::Engine engine;
  rpc::PositionEmbeddingServiceImpl service;
};

// Calls of a method, each with the next of some messages. gRPC makes the context and the received
// message, so they are not counted.
class ServerCall {
 public:
  ServerCall(Method method, std::vector<std::string> messages, Backend& backend,
             memory::Stores stores)
      : parts_(backend, stores), method_(method), messages_(std::move(messages)) {}

  void Prepare() {
    answered_.reset();
    response_.Clear();
    context_.emplace(/*is_late=*/false, /*gate=*/nullptr, /*named=*/nullptr);
    answered_.emplace(&*context_);
    const grpc::Slice slice(messages_[calls_++ % messages_.size()]);
    request_ = grpc::ByteBuffer(&slice, 1);
  }

  void Run() {
    (parts_.service.*method_)(&*context_, &request_, &response_);
    if (!answered_->test_status_set() || !answered_->test_status().ok()) Die("the call failed");
  }

 private:
  ServerParts parts_;
  const Method method_;
  const std::vector<std::string> messages_;
  size_t calls_ = 0;
  std::optional<rpc::CallContext> context_;
  std::optional<grpc::testing::DefaultReactorTestPeer> answered_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
};

Workload CallsOf(Method method, std::vector<std::string> messages, Backend& backend = Avx2(),
                 memory::Stores stores = {}) {
  const auto call = std::make_shared<ServerCall>(method, std::move(messages), backend, stores);
  return {[call] { call->Run(); }, [call] { call->Prepare(); }};
}

Workload CallOf(Method method, const google::protobuf::MessageLite& message,
                Backend& backend = Avx2(), memory::Stores stores = {}) {
  return CallsOf(method, {message.SerializeAsString()}, backend, stores);
}

v1::EncodeItem EncodeOf64Bytes() { return ToWire(RequestOf(EncodeCase{.rows = 1, .dim = 16})); }

Workload EncodeCall() {
  v1::EncodeRequest message;
  *message.mutable_item() = EncodeOf64Bytes();
  return CallOf(&rpc::PositionEmbeddingServiceImpl::Encode, message);
}

// The same at another position each time.
Workload EncodeNextCall() {
  std::vector<std::string> messages;
  v1::EncodeRequest message;
  *message.mutable_item() = EncodeOf64Bytes();
  for (int64_t i = 0; i < kUnmeasuredRuns + kRuns; ++i) {
    message.mutable_item()->mutable_positions()->mutable_range()->mutable_integer()->set_start(i);
    messages.push_back(message.SerializeAsString());
  }
  return CallsOf(&rpc::PositionEmbeddingServiceImpl::Encode, std::move(messages));
}

Workload BatchEncodeCall() {
  v1::BatchEncodeRequest message;
  for (int i = 0; i < 16; ++i) {
    v1::EncodeItem& item = *message.add_items() = EncodeOf64Bytes();
    item.mutable_positions()->mutable_range()->mutable_integer()->set_start(1009 * i);
  }
  return CallOf(&rpc::PositionEmbeddingServiceImpl::BatchEncode, message);
}

Workload RopeCall() {
  RopeRequest request = RequestOf(RopeCase{.q_heads = 2, .k_heads = 1, .positions = {0}});
  request.positions = AxisRange(IntegerRange{.start = 1000, .count = 1});
  v1::ApplyRoPERequest message;
  *message.mutable_item() = ToWire(request);
  message.add_raw(std::string(2 * 128 * 4, 'q'));
  message.add_raw(std::string(1 * 128 * 4, 'k'));
  return CallOf(&rpc::PositionEmbeddingServiceImpl::ApplyRoPE, message);
}

// The token of RotateTokenOnDevice, in a region of the device's memory.
Workload DeviceRopeCall() {
  const absl::Status known =
      Device().regions.Register("kv", Device().place, {}, {.for_everybody = true}, {});
  if (!known.ok()) Die(known.ToString());
  RopeRequest request = RequestOf(RopeCase{.dtype = Dtype::kBFloat16, .positions = {0}});
  request.positions = AxisRange(IntegerRange{.start = 1000, .count = 1});
  v1::ApplyRoPERequest message;
  *message.mutable_item() = ToWire(request);
  int64_t at = 0;
  for (v1::RopeTensor& tensor : *message.mutable_item()->mutable_tensors()) {
    tensor.mutable_tensor()->mutable_device()->set_region("kv");
    tensor.mutable_tensor()->mutable_device()->set_offset_bytes(at);
    *tensor.mutable_destination() = tensor.tensor();
    at += 32 * 128 * 2;
  }
  return CallOf(&rpc::PositionEmbeddingServiceImpl::ApplyRoPE, message, Device().backend,
                {.devices = &Device().regions});
}

// What the server counts about a call.
Workload CountCall() {
  static constexpr char kMethod[] = "phasor.v1.PositionEmbeddingService/Encode";
  const auto metrics =
      std::make_shared<telemetry::Metrics>(std::vector<std::string>{std::string(kMethod)});
  return {[metrics] {
    const auto nothing = [] { return std::string(); };
    rpc::CallObserver* const observer = &metrics->calls;
    observer->Started(kMethod);
    observer->Ended({kMethod, 0, "", absl::Microseconds(100), 200, 60, nothing, nothing, {}});
  }};
}

// --- in process
// -----------------------------------------------------------------------------------

Workload InprocCall() {
  struct State {
    Client client = ConnectTo("inproc:", 1);
    RopeCase rope{.q_heads = 2, .k_heads = 0, .positions = {0}};
    Memory x{rope.q_bytes()};
  };
  const auto state = std::make_shared<State>();
  FillNormal(state->rope.dtype, state->x);
  return {[state] { Rotate(state->client, bench::CallOf(state->rope, state->x.data())); }};
}

// --- kernels
// --------------------------------------------------------------------------------------

Workload EncodeRows(Dtype dtype) {
  const EncodeCase encode{.rows = 64, .dim = 256, .dtype = dtype};
  const auto out = std::make_shared<Memory>(encode.bytes());
  return {[out, run = EncodeRun(encode)] { run.Run(Avx2(), out->data()); }};
}

Workload RotateToken(Dtype dtype) {
  struct State {
    explicit State(Dtype type) : rope{.dtype = type, .positions = {1000}} {}
    RopeCase rope;
    RopeRun run{rope};
    Memory x{rope.bytes()};
  };
  const auto state = std::make_shared<State>(dtype);
  FillNormal(dtype, state->x);
  return {[state] { state->run.Run(Avx2(), state->x.data(), state->x.data()); }};
}

// A token of 32 query and 8 key heads in a GPU's memory: what the host does until the launch, and
// after it.
Workload RotateTokenOnDevice() {
  struct State {
    RopeCase rope{.dtype = Dtype::kBFloat16, .positions = {1000}};
    RopeRun run{rope};
  };
  const auto state = std::make_shared<State>();
  std::byte* const x = Device().allocation->data();
  return {[state, x] { state->run.Run(Device().backend, x, x); }};
}

// Four tokens of a layer of Llama-3.1-8B move by 4096 positions, within their page.
Workload MoveTokens() {
  const KeyLayout layout{.name = "nhd",
                         .code = KeyCode::kBFloat16,
                         .pages = 4,
                         .page_size = 16,
                         .heads = 8,
                         .head_dim = 128,
                         .layers = 1};
  const auto pool = std::make_shared<Memory>(4 * 16 * 8 * 128 * 2 * 2);
  FillNormal(Dtype::kBFloat16, *pool);
  MoveRequest request;
  request.mode = MoveMode::kMove;
  request.pools = {pool->size()};
  request.layouts = {layout};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers.push_back({.spec = 0, .layer = 0, .copy_values = false});
  request.groups = {{.runs = {{.block_table = {2}, .count = 4, .from = 0, .to = 4096}}}};
  const auto plans = std::make_shared<engine::PlanCache>(1 << 20);
  return {[=] {
    const auto plan = [&](const ResolvedSpec& spec) { return plans->Get(spec); };
    const PreparedMove move = ValueOrDie(PrepareMove(request, plan, "item"));
    std::byte* const pools[] = {pool->data()};
    const Job jobs[] = {MakeMoveJob(move, pools, nullptr)};
    if (const absl::Status ran = Avx2().Run(jobs); !ran.ok()) Die(ran.ToString());
  }};
}

// --- specs
// ----------------------------------------------------------------------------------------

Workload ReadConfig() {
  Spec spec;
  spec.config_json = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0", "use_cache": true,
    "vocab_size": 128256})";
  return {[spec] { ValueOrDie(SpecFromConfigJson(spec, "spec")); }};
}

// A cache of 0 bytes keeps no plan.
Workload FindPlan(int64_t cache_bytes) {
  const Spec spec{.preset = "llama-3.1-8b"};
  const auto plans = std::make_shared<engine::PlanCache>(cache_bytes);
  return {[=] { ValueOrDie(plans->Get(ValueOrDie(ResolveSpec(spec)))); }};
}

struct Named {
  const char* name;
  std::function<Workload()> make;
};

const std::vector<Named>& Workloads() {
  static const auto& all = *new std::vector<Named>{
      {"encode_call", EncodeCall},
      {"encode_next_call", EncodeNextCall},
      {"rope_call", RopeCall},
      {"device_rope_call", DeviceRopeCall},
      {"batch_encode_call", BatchEncodeCall},
      {"count_call", CountCall},
      {"inproc_call", InprocCall},
      {"encode_rows_f32", [] { return EncodeRows(Dtype::kFloat32); }},
      {"encode_rows_bf16", [] { return EncodeRows(Dtype::kBFloat16); }},
      {"rotate_token_f32", [] { return RotateToken(Dtype::kFloat32); }},
      {"rotate_token_bf16", [] { return RotateToken(Dtype::kBFloat16); }},
      {"rotate_token_on_device", RotateTokenOnDevice},
      {"move_tokens", MoveTokens},
      {"read_config", ReadConfig},
      {"plan_cached", [] { return FindPlan(1 << 20); }},
      {"plan_compiled", [] { return FindPlan(0); }},
  };
  return all;
}

void Run(const Workload& workload) {
  for (int i = 0; i < kUnmeasuredRuns; ++i) {
    workload.prepare();
    workload.run();
  }
  for (int i = 0; i < kRuns; ++i) {
    workload.prepare();
    phasor_measured(workload.run);
  }
}

void Time(const Workload& workload, int runs) {
  auto shortest = absl::InfiniteDuration();
  for (int i = 0; i < runs; ++i) {
    workload.prepare();
    const auto begin = std::chrono::steady_clock::now();
    workload.run();
    shortest = std::min(shortest, absl::FromChrono(std::chrono::steady_clock::now() - begin));
  }
  std::printf("%s\n", absl::FormatDuration(shortest).c_str());
}

int Main(int argc, char** argv) {
  const auto wanted = [&](const Named& named) {
    return (argc == 2 || argc == 3) && named.name == std::string_view(argv[1]);
  };
  if (argc == 1) {
    std::puts(kCompiler);
    for (const Named& named : Workloads()) std::puts(named.name);
    return 0;
  }
  const auto found = absl::c_find_if(Workloads(), wanted);
  if (found == Workloads().end()) Die("usage: bench_instructions [NAME [N]]");
  ChooseLockOrderChecks();  // as the server does
  if (argc == 3) {
    Time(found->make(), std::atoi(argv[2]));
    return 0;
  }
  Run(found->make());
  std::printf("%d\n", kRuns);
  return 0;
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
