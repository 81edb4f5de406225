// SPDX-License-Identifier: Apache-2.0
// A trip as a CUDA graph: the device is told once what follows what, and later only what has
// changed. For cuda_driver.cc; the current device must be the graph's.
#ifndef PHASOR_KERNELS_CUDA_TRIP_GRAPH_H_
#define PHASOR_KERNELS_CUDA_TRIP_GRAPH_H_

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/trip.h"

namespace phasor::cuda {

// Threads: one. Owns the graph.
class TripGraph {
 public:
  TripGraph() = default;
  ~TripGraph();
  TripGraph(const TripGraph&) = delete;
  TripGraph& operator=(const TripGraph&) = delete;

  // Once, before anything else; `trip` has launches, all with blocks. After an error the graph is
  // of no use.
  cudaError_t Make(const Trip& trip);
  // Whether it can be changed to `trip`: the same kernels, and something comes back from both or
  // neither.
  bool Fits(const Trip& trip) const;
  // Queues a trip that fits. After an error the graph is of no use.
  cudaError_t Queue(const Trip& trip, cudaStream_t stream);

 private:
  cudaError_t AddKernel(const Launch& launch, cudaGraphNode_t* after);
  cudaError_t ChangeTo(const Trip& trip);

  Trip trip_;  // of the graph as it is now
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  cudaGraphNode_t copy_in_ = nullptr, copy_out_ = nullptr;
  std::vector<cudaGraphNode_t> kernels_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_TRIP_GRAPH_H_
