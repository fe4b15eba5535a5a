// SPDX-License-Identifier: Apache-2.0
// Compiled with the real cuda.h where there is one: the build adds CUDA_HOME's or
// /usr/local/cuda's include folder.
#include <cstddef>

#include "tests/intercept/cuda/cuda_abi.h"

#if __has_include(<cuda.h>)

// Declares every version of a function under its own name, instead of renaming.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#define GS_CUDA_LEVEL CUDA_VERSION
gpushare::CudaAbi gpushare::real_cuda_abi() {
#include "tests/intercept/cuda/cuda_abi_table.inc"
}

#else

gpushare::CudaAbi gpushare::real_cuda_abi() { return {}; }

#endif
