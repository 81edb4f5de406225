// SPDX-License-Identifier: Apache-2.0
// PHASOR_HD marks functions that run on the host and, when nvcc compiles them, on the device.
#ifndef PHASOR_KERNELS_BASE_HOST_DEVICE_H_
#define PHASOR_KERNELS_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define PHASOR_HD __host__ __device__ inline
#else
#define PHASOR_HD inline
#endif

// Before a loop whose arrays are to live in a GPU's registers.
#ifdef __CUDA_ARCH__
#define PHASOR_UNROLL _Pragma("unroll")
#else
#define PHASOR_UNROLL
#endif

#endif  // PHASOR_KERNELS_BASE_HOST_DEVICE_H_
