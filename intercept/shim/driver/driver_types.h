// SPDX-License-Identifier: Apache-2.0
// Types that hooks.def names and cuda_api.h does not have: handles that the shim only passes on.
// And what a list of X(name, parameters), one for each function of the driver that a file calls, is
// made into.
#pragma once

#include "intercept/cuda/cuda_api.h"

extern "C" {

using CUmemoryPool = struct CUmemPoolHandle_st*;

}  // extern "C"

// The members of the struct that has these functions.
// NOLINTNEXTLINE(bugprone-macro-parentheses): it is a declarator
#define GS_FUNCTION_POINTER(name, parameters) CUresult(*name) parameters;
// Their names, by which DriverTable (lookup.h) looks them up.
#define GS_FUNCTION_NAME(name, parameters) #name,
// Both, for the functions of a list.
#define GS_FUNCTIONS(list) \
  list(GS_FUNCTION_POINTER) static constexpr const char* kNames[] = {list(GS_FUNCTION_NAME)};
