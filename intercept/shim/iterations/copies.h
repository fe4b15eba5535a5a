// SPDX-License-Identifier: Apache-2.0
// Which way a copy goes and how many bytes it has, if the call itself does not say. On the thread
// of the call, after it; asks the driver whose memory it is.
#pragma once

#include "intercept/shim/driver/driver_types.h"
#include "intercept/shim/iterations/iteration.h"

namespace gpushare::shim {

struct CopyTold {
  CopyWay way;
  uint64_t bytes;
};

// A copy between two pointers. If the driver cannot say whose memory they are, it is on the GPU.
CopyTold copy_between(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);

// A copy with a description: CUDA_MEMCPY2D or CUDA_MEMCPY3D of the driver API, version 2.
CopyTold shaped_copy(const void* description, bool is_3d);

}  // namespace gpushare::shim
