// SPDX-License-Identifier: Apache-2.0
// Which way a copy goes, and how much it is, where the call itself does not say.
#pragma once

#include "intercept/shim/driver/driver_types.h"
#include "intercept/shim/iterations/iteration.h"

namespace gpushare::shim {

struct CopyTold {
  CopyWay way;
  uint64_t bytes;
};

// By asking the driver whose memory it is. A driver that cannot say: on the GPU.
CopyTold copy_between(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);

// CUDA_MEMCPY2D and CUDA_MEMCPY3D of the driver API, version 2.
CopyTold shaped_copy(const void* description, bool is_3d);

}  // namespace gpushare::shim
