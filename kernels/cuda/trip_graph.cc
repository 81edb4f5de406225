// SPDX-License-Identifier: Apache-2.0
// Makes, changes and queues the CUDA graph of a trip. Its nodes follow one another.
#include "kernels/cuda/trip_graph.h"

#include <cstddef>

#include "kernels/cuda/launch.h"

namespace phasor::cuda {
namespace {

// The parameters of a kernel node. Borrows the launch.
cudaKernelNodeParams ParamsOf(const Launch& launch, void** arguments) {
  cudaKernelNodeParams params = {};
  params.func = const_cast<void*>(KernelFunction(launch.kernel));
  params.gridDim = dim3(static_cast<unsigned>(launch.batch.blocks));
  params.blockDim = dim3(kThreads);
  arguments[0] = const_cast<Batch*>(&launch.batch);
  params.kernelParams = arguments;
  return params;
}

bool SameBatch(const Batch& a, const Batch& b) {
  return a.items == b.items && a.first_block == b.first_block && a.count == b.count &&
         a.blocks == b.blocks;
}

}  // namespace

TripGraph::~TripGraph() {
  if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  if (graph_ != nullptr) cudaGraphDestroy(graph_);
  cudaGetLastError();  // clear an error of these calls, so that no other call reports it
}

cudaError_t TripGraph::AddKernel(const Launch& launch, cudaGraphNode_t* after) {
  void* arguments[1];
  const cudaKernelNodeParams params = ParamsOf(launch, arguments);
  cudaGraphNode_t node = nullptr;
  const cudaError_t error = cudaGraphAddKernelNode(&node, graph_, after, 1, &params);
  kernels_.push_back(node);
  *after = node;
  return error;
}

cudaError_t TripGraph::Make(const Trip& trip) {
  trip_ = trip;
  cudaError_t error = cudaGraphCreate(&graph_, 0);
  if (error != cudaSuccess) return error;
  error = cudaGraphAddMemcpyNode1D(&copy_in_, graph_, nullptr, 0, trip.device_in, trip.host_in,
                                   static_cast<size_t>(trip.in_bytes), cudaMemcpyHostToDevice);
  cudaGraphNode_t last = copy_in_;
  for (const Launch& launch : trip.launches) {
    if (error == cudaSuccess) error = AddKernel(launch, &last);
  }
  if (error == cudaSuccess && trip.out_bytes > 0) {
    error = cudaGraphAddMemcpyNode1D(&copy_out_, graph_, &last, 1, trip.host_out, trip.device_out,
                                     static_cast<size_t>(trip.out_bytes), cudaMemcpyDeviceToHost);
  }
  return error != cudaSuccess ? error : cudaGraphInstantiateWithFlags(&exec_, graph_, 0);
}

bool TripGraph::Fits(const Trip& trip) const {
  if (trip.launches.size() != trip_.launches.size()) return false;
  for (size_t i = 0; i < trip.launches.size(); ++i) {
    if (!(trip.launches[i].kernel == trip_.launches[i].kernel)) return false;
  }
  return (trip.out_bytes > 0) == (trip_.out_bytes > 0);
}

cudaError_t TripGraph::ChangeTo(const Trip& trip) {
  cudaError_t error = cudaSuccess;
  if (trip.host_in != trip_.host_in || trip.device_in != trip_.device_in ||
      trip.in_bytes != trip_.in_bytes) {
    error = cudaGraphExecMemcpyNodeSetParams1D(exec_, copy_in_, trip.device_in, trip.host_in,
                                               static_cast<size_t>(trip.in_bytes),
                                               cudaMemcpyHostToDevice);
  }
  for (size_t i = 0; i < kernels_.size() && error == cudaSuccess; ++i) {
    if (SameBatch(trip.launches[i].batch, trip_.launches[i].batch)) continue;
    void* arguments[1];
    const cudaKernelNodeParams params = ParamsOf(trip.launches[i], arguments);
    error = cudaGraphExecKernelNodeSetParams(exec_, kernels_[i], &params);
  }
  if (error == cudaSuccess && trip.out_bytes > 0 &&
      (trip.host_out != trip_.host_out || trip.device_out != trip_.device_out ||
       trip.out_bytes != trip_.out_bytes)) {
    error = cudaGraphExecMemcpyNodeSetParams1D(exec_, copy_out_, trip.host_out, trip.device_out,
                                               static_cast<size_t>(trip.out_bytes),
                                               cudaMemcpyDeviceToHost);
  }
  trip_ = trip;
  return error;
}

cudaError_t TripGraph::Queue(const Trip& trip, cudaStream_t stream) {
  const cudaError_t error = ChangeTo(trip);
  return error != cudaSuccess ? error : cudaGraphLaunch(exec_, stream);
}

}  // namespace phasor::cuda
