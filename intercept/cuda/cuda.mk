# SPDX-License-Identifier: Apache-2.0
# What CUDA programs link against: a library with the driver's name and no code.
libcuda_stub := lib/stubs/libcuda.so.1
$(O)/$(libcuda_stub): intercept/cuda/libcuda_stub.c intercept/cuda/cuda_functions.inc
	$(call say,STUB,$(libcuda_stub))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -shared -nostdlib -Wl,-soname,libcuda.so.1 -o $@ $<
