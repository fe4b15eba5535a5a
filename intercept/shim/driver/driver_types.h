// SPDX-License-Identifier: Apache-2.0
// The types that hooks.def names, beyond those of cuda_api.h: handles that the shim only hands on.
#pragma once

#include "intercept/cuda/cuda_api.h"

extern "C" {

using CUmemoryPool = struct CUmemPoolHandle_st*;

}  // extern "C"
