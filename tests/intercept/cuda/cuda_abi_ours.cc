// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "intercept/cuda/cuda_api.h"
#include "tests/intercept/cuda/cuda_abi.h"

gpushare::CudaAbi gpushare::our_cuda_abi() {
#include "tests/intercept/cuda/cuda_abi_table.inc"
}
