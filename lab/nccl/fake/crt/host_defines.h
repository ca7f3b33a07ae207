// Stands in for crt/host_defines.h, which comes with nvcc and not with the runtime's wheel: what a
// plain host compiler needs of it to read the runtime's headers.
#pragma once
#define __HOST_DEFINES_H__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define CUDACB
#define CUDA_CB
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __specialization_static static
#define __grid_constant__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __no_return__ __attribute__((noreturn))
#define __location__(a)
#define __import__
#define __export__
