/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 to link programs against where there is no driver. It is never run: should the
 * loader find it, every function says CUDA_ERROR_STUB_LIBRARY, as the toolkit's own stub does. */
#define GS_CUDA_FUNCTION(base, symbol, since, parameters) \
  int symbol(void);                                       \
  int symbol(void) { return 34; }
#include "intercept/cuda/cuda_functions.inc"
