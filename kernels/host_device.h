// SPDX-License-Identifier: Apache-2.0
// PHASOR_HD marks functions that run on the host and, when nvcc compiles them, on the device.
#ifndef PHASOR_KERNELS_HOST_DEVICE_H_
#define PHASOR_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define PHASOR_HD __host__ __device__ inline
#else
#define PHASOR_HD inline
#endif

#endif  // PHASOR_KERNELS_HOST_DEVICE_H_
