// SPDX-License-Identifier: Apache-2.0
// PHASOR_HD marks a function that runs on the host and, when nvcc compiles it, on the device too.
#ifndef PHASOR_KERNELS_BASE_HOST_DEVICE_H_
#define PHASOR_KERNELS_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define PHASOR_HD __host__ __device__ inline
#else
#define PHASOR_HD inline
#endif

// Put PHASOR_UNROLL before a loop whose arrays should live in a GPU's registers, and PHASOR_ROLLED
// before one that rarely goes round twice.
#ifdef __CUDA_ARCH__
#define PHASOR_UNROLL _Pragma("unroll")
#define PHASOR_ROLLED _Pragma("unroll 1")
#else
#define PHASOR_UNROLL
#define PHASOR_ROLLED
#endif

#endif  // PHASOR_KERNELS_BASE_HOST_DEVICE_H_
