// SPDX-License-Identifier: Apache-2.0
// A trip as a CUDA graph: the device learns the order of the work once, and later only what
// changed. Used by cuda_driver.cc. The current device must be the graph's.
#ifndef PHASOR_KERNELS_CUDA_TRIP_GRAPH_H_
#define PHASOR_KERNELS_CUDA_TRIP_GRAPH_H_

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/trip.h"

namespace phasor::cuda {

// A graph that can be changed to similar trips. Owns the CUDA graph. Threads: one thread at a time.
class TripGraph {
 public:
  TripGraph() = default;
  ~TripGraph();
  TripGraph(const TripGraph&) = delete;
  TripGraph& operator=(const TripGraph&) = delete;

  // Call once, before anything else. `trip` must have launches, all with blocks. After an error the
  // graph cannot be used.
  cudaError_t Make(const Trip& trip);
  // Whether the graph can be changed to `trip`: it has the same kernels, and results come back from
  // both or from neither.
  bool Fits(const Trip& trip) const;
  // Queues a trip that fits. After an error the graph cannot be used.
  cudaError_t Queue(const Trip& trip, cudaStream_t stream);

 private:
  cudaError_t AddKernel(const Launch& launch, cudaGraphNode_t* after);
  cudaError_t ChangeTo(const Trip& trip);

  Trip trip_;  // what the graph does now
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  cudaGraphNode_t copy_in_ = nullptr, copy_out_ = nullptr;
  std::vector<cudaGraphNode_t> kernels_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_TRIP_GRAPH_H_
