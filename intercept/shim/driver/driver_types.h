// SPDX-License-Identifier: Apache-2.0
// Types that hooks.def names and cuda_api.h does not have: handles that the shim only passes on.
#pragma once

#include "intercept/cuda/cuda_api.h"

extern "C" {

using CUmemoryPool = struct CUmemPoolHandle_st*;

}  // extern "C"
