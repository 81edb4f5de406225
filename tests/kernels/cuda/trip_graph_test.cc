// SPDX-License-Identifier: Apache-2.0
// The calls that graphs of trips make to the CUDA runtime, on a runtime that only records them.
// cuda_driver_test checks that a device carries them out.
#include "kernels/cuda/trip_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/text.h"
#include "kernels/cuda/launch.h"

namespace {

// The calls that were recorded; one of them can be made to fail.
std::vector<std::string>& Calls() {
  static auto& calls = *new std::vector<std::string>;
  return calls;
}
std::string& Failing() {
  static auto& failing = *new std::string;
  return failing;
}
cudaError_t Note(const std::string& call, const std::string& what) {
  Calls().push_back(phasor::StrCat(call, what));
  return Failing() == call ? cudaErrorInvalidValue : cudaSuccess;
}

// Nodes are numbers.
cudaGraphNode_t NodeOf(intptr_t number) { return reinterpret_cast<cudaGraphNode_t>(number); }
std::string NumberOf(const void* pointer) {
  return phasor::StrCat(reinterpret_cast<intptr_t>(pointer));
}
intptr_t g_nodes = 0;

std::string Added(cudaGraphNode_t* node, const cudaGraphNode_t* after, size_t count) {
  *node = NodeOf(++g_nodes);
  return phasor::StrCat(" node ", g_nodes, " after ", count == 0 ? "nothing" : NumberOf(*after));
}
std::string Described(const cudaKernelNodeParams& params) {
  const auto& batch = *static_cast<const phasor::cuda::Batch*>(params.kernelParams[0]);
  return phasor::StrCat(" kernel ", NumberOf(params.func), " blocks ", params.gridDim.x, " of ",
                        params.blockDim.x, " items ", batch.count);
}
std::string Described(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return phasor::StrCat(" ", bytes, " from ", NumberOf(from), " to ", NumberOf(to),
                        kind == cudaMemcpyHostToDevice ? " there" : " back");
}

}  // namespace

extern "C" {
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  g_nodes = 0;
  *graph = reinterpret_cast<cudaGraph_t>(intptr_t{1});
  return Note("create", "");
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t,
                                     const cudaGraphNode_t* after, size_t count, void* to,
                                     const void* from, size_t bytes, cudaMemcpyKind kind) {
  return Note("copy", Added(node, after, count) + Described(to, from, bytes, kind));
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t, const cudaGraphNode_t* after,
                                   size_t count, const cudaKernelNodeParams* params) {
  return Note("run", Added(node, after, count) + Described(*params));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t, unsigned long long) {
  *exec = reinterpret_cast<cudaGraphExec_t>(intptr_t{1});
  return Note("instantiate", "");
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t, cudaGraphNode_t node, void* to,
                                               const void* from, size_t bytes,
                                               cudaMemcpyKind kind) {
  return Note("set", " node " + NumberOf(node) + Described(to, from, bytes, kind));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  return Note("set", " node " + NumberOf(node) + Described(*params));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return Note("launch", ""); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return Note("destroy exec", ""); }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return Note("destroy", ""); }
cudaError_t cudaGetLastError() { return cudaSuccess; }
}

namespace phasor::cuda {

// The number of its element type.
const void* KernelFunction(const KernelId& id) {
  return reinterpret_cast<const void*>(static_cast<intptr_t>(id.dtype));
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::byte* At(intptr_t address) { return reinterpret_cast<std::byte*>(address); }

KernelId KernelFor(Dtype dtype) {
  KernelId id;
  id.dtype = dtype;
  return id;
}

class TripGraphTest : public ::testing::Test {
 protected:
  TripGraphTest() {
    Calls().clear();
    Failing().clear();
    trip_ = {At(1000), At(2000), 10, {}, At(3000), At(4000), 20};
    trip_.launches.push_back({KernelFor(Dtype::kBFloat16), {At(2005), nullptr, 3, 7}});
    trip_.launches.push_back({KernelFor(Dtype::kFloat32), {At(2006), nullptr, 1, 9}});
  }
  // The calls since the last time.
  static std::vector<std::string> Asked() { return std::exchange(Calls(), {}); }
  static std::string Number(Dtype dtype) { return StrCat(static_cast<int>(dtype)); }

  Trip trip_;
};

TEST_F(TripGraphTest, IsMadeOnceAndLaunchedAgain) {
  {
    TripGraph graph;
    ASSERT_EQ(graph.Make(trip_), cudaSuccess);
    EXPECT_THAT(Asked(),
                ElementsAre("create", "copy node 1 after nothing 10 from 1000 to 2000 there",
                            StrCat("run node 2 after 1 kernel ", Number(Dtype::kBFloat16),
                                   " blocks 7 of 256 items 3"),
                            StrCat("run node 3 after 2 kernel ", Number(Dtype::kFloat32),
                                   " blocks 9 of 256 items 1"),
                            "copy node 4 after 3 20 from 3000 to 4000 back", "instantiate"));
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(graph.Fits(trip_));
      ASSERT_EQ(graph.Queue(trip_, nullptr), cudaSuccess);
      EXPECT_THAT(Asked(), ElementsAre("launch")) << "nothing has changed";
    }
  }
  EXPECT_THAT(Asked(), ElementsAre("destroy exec", "destroy"));
}

TEST_F(TripGraphTest, OnlyWhatHasChangedIsTold) {
  TripGraph graph;
  ASSERT_EQ(graph.Make(trip_), cudaSuccess);
  Asked();
  trip_.in_bytes = 11;
  trip_.launches[1].batch.blocks = 5;
  ASSERT_EQ(graph.Queue(trip_, nullptr), cudaSuccess);
  EXPECT_THAT(Asked(), ElementsAre("set node 1 11 from 1000 to 2000 there",
                                   StrCat("set node 3 kernel ", Number(Dtype::kFloat32),
                                          " blocks 5 of 256 items 1"),
                                   "launch"));
  trip_.host_out = At(5000);
  ASSERT_EQ(graph.Queue(trip_, nullptr), cudaSuccess);
  EXPECT_THAT(Asked(), ElementsAre("set node 4 20 from 3000 to 5000 back", "launch"));
  trip_.launches[0].batch.items = At(2004);
  ASSERT_EQ(graph.Queue(trip_, nullptr), cudaSuccess);
  EXPECT_EQ(Asked().size(), 2u);
  ASSERT_EQ(graph.Queue(trip_, nullptr), cudaSuccess);
  EXPECT_THAT(Asked(), ElementsAre("launch"));
}

TEST_F(TripGraphTest, FitsTripsThroughTheSameKernels) {
  TripGraph graph;
  ASSERT_EQ(graph.Make(trip_), cudaSuccess);
  Trip other = trip_;
  other.launches[0].kernel = KernelFor(Dtype::kFloat16);
  EXPECT_FALSE(graph.Fits(other));
  other = trip_;
  other.launches.pop_back();
  EXPECT_FALSE(graph.Fits(other));
  other = trip_;
  other.out_bytes = 0;
  EXPECT_FALSE(graph.Fits(other)) << "nothing comes back";
  other = trip_;
  other.in_bytes = 99;
  other.out_bytes = 1;
  other.launches[0].batch = {};
  EXPECT_TRUE(graph.Fits(other));
}

TEST_F(TripGraphTest, WithoutResultsNothingComesBack) {
  trip_.out_bytes = 0;
  TripGraph graph;
  ASSERT_EQ(graph.Make(trip_), cudaSuccess);
  EXPECT_EQ(Asked().size(), 5u);
  trip_.host_out = At(1);
  ASSERT_EQ(graph.Queue(trip_, nullptr), cudaSuccess);
  EXPECT_THAT(Asked(), ElementsAre("launch"));
}

TEST_F(TripGraphTest, ErrorsEndWhatIsBeingDone) {
  for (const std::string call : {"create", "copy", "run", "instantiate"}) {
    Failing() = call;
    TripGraph graph;
    EXPECT_EQ(graph.Make(trip_), cudaErrorInvalidValue) << call;
    EXPECT_TRUE(Asked().back().starts_with(call)) << "nothing was asked after it";
  }
  for (const std::string call : {"set", "launch"}) {
    Failing().clear();
    TripGraph graph;
    ASSERT_EQ(graph.Make(trip_), cudaSuccess);
    Failing() = call;
    Trip other = trip_;
    other.in_bytes = 11;
    other.out_bytes = 21;
    Asked();
    EXPECT_EQ(graph.Queue(other, nullptr), cudaErrorInvalidValue);
    EXPECT_TRUE(Asked().back().starts_with(call)) << "nothing was asked after it";
  }
}

}  // namespace
}  // namespace phasor::cuda
