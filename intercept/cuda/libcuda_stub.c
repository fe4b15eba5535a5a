/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 to link programs against on machines without a driver. It is not made to be run:
 * if the loader finds it, every function returns CUDA_ERROR_STUB_LIBRARY, as the toolkit's stub. */
#define GS_CUDA_FUNCTION(base, symbol, since, parameters) \
  int symbol(void);                                       \
  int symbol(void) { return 34; }
#include "intercept/cuda/cuda_functions.inc"
