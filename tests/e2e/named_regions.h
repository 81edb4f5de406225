// SPDX-License-Identifier: Apache-2.0
// A whole server with named regions, and a client that registers them. The backend inverts every
// bit and can be made to wait.
#ifndef PHASOR_TESTS_E2E_NAMED_REGIONS_H_
#define PHASOR_TESTS_E2E_NAMED_REGIONS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "tests/support/fake_backend.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"

namespace phasor::testing {

inline constexpr int64_t kRegionTokens = 2;
inline constexpr int64_t kRegionBytes = kRegionTokens * 2 * 8 * 4;  // of RopeOf's first tensor

inline std::string Inverted(std::string bytes) {
  for (char& byte : bytes) byte = static_cast<char>(~byte);
  return bytes;
}

inline int64_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

struct RegionOwner {  // has a connection of its own
  explicit RegionOwner(const std::string& address)
      : channel(NewChannel(address)),
        memory(v1::SharedMemoryService::NewStub(channel)),
        embedding(v1::PositionEmbeddingService::NewStub(channel)) {}

  grpc::Status Register(const std::string& name, const std::string& key, int64_t bytes,
                        int64_t offset = 0, bool read_only = false, int64_t ttl_ms = 0) const {
    TestContext context;
    v1::RegisterRequest request;
    request.mutable_region()->set_name(name);
    request.mutable_region()->set_size_bytes(bytes);
    request.mutable_region()->set_read_only(read_only);
    request.mutable_region()->set_ttl_ms(ttl_ms);
    request.mutable_region()->mutable_posix()->set_key(key);
    request.mutable_region()->mutable_posix()->set_offset_bytes(offset);
    v1::RegisterResponse response;
    return memory->Register(&context, request, &response);
  }
  grpc::Status Unregister(const std::string& name) const {
    TestContext context;
    v1::UnregisterRequest request;
    request.set_name(name);
    v1::UnregisterResponse response;
    return memory->Unregister(&context, request, &response);
  }
  // Names of its regions.
  std::vector<std::string> List() const {
    TestContext context;
    v1::ListResponse response;
    EXPECT_TRUE(memory->List(&context, {}, &response).ok());
    std::vector<std::string> names;
    for (const v1::Region& region : response.regions()) names.push_back(region.name());
    return names;
  }
  // Inverts `kRegionBytes` from `in` to `out`, regions with their offsets; no `out`: to `*answer`.
  struct Place {
    std::string region;
    int64_t offset = 0;
  };
  grpc::Status Invert(const Place& in, const Place& out, std::string* answer = nullptr) const {
    TestContext context;
    v1::ApplyRoPERequest request;
    *request.mutable_item() = RopeOf(kRegionTokens);
    request.mutable_item()->mutable_tensors()->RemoveLast();
    v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
    const auto place = [](const Place& at, v1::TensorSpec* spec) {
      spec->mutable_region()->set_region(at.region);
      spec->mutable_region()->set_offset_bytes(at.offset);
    };
    if (!out.region.empty()) {
      *tensor.mutable_destination() = tensor.tensor();
      place(out, tensor.mutable_destination());
    }
    place(in, tensor.mutable_tensor());
    v1::ApplyRoPEResponse response;
    const grpc::Status status = embedding->ApplyRoPE(&context, request, &response);
    if (status.ok() && answer != nullptr) *answer = response.raw(0);
    if (status.ok() && !out.region.empty()) {
      EXPECT_EQ(response.result().tensors(0).region().region(), out.region);
      EXPECT_EQ(response.raw_size(), 0);
    }
    return status;
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::SharedMemoryService::Stub> memory;
  std::unique_ptr<v1::PositionEmbeddingService::Stub> embedding;
};

class NamedRegionsTest : public ::testing::Test {
 protected:
  void Start(const ServerOptions& options) {
    auto backend = std::make_unique<FakeBackend>();
    backend_ = backend.get();
    server_ = StartServer(options, std::move(backend));
    ASSERT_NE(server_, nullptr);
    me_ = std::make_unique<RegionOwner>(Address());
  }
  void SetUp() override { Start(SharedMemoryOptions()); }
  void TearDown() override {
    if (backend_ != nullptr) backend_->Release();
  }
  std::string Address() const { return server_->listeners()[0]; }
  // That the server still works, with memory that nobody touches.
  void ExpectHealthy() {
    const SharedMemory memory(std::string(kRegionBytes, 'h'));
    const RegionOwner owner(Address());
    EXPECT_TRUE(owner.Register("healthy", memory.key(), kRegionBytes).ok());
    EXPECT_TRUE(owner.Invert({"healthy"}, {"healthy"}).ok());
    EXPECT_EQ(memory.bytes(), Inverted(std::string(kRegionBytes, 'h')));
    EXPECT_TRUE(owner.Unregister("healthy").ok());
  }

  FakeBackend* backend_ = nullptr;  // the server's
  std::unique_ptr<Server> server_;
  std::unique_ptr<RegionOwner> me_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_E2E_NAMED_REGIONS_H_
