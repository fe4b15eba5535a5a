# SPDX-License-Identifier: Apache-2.0
# What CUDA programs link against: a library with the driver's name and empty functions.
libcuda_stub := lib/stubs/libcuda.so.1
$(O)/$(libcuda_stub): intercept/cuda/libcuda_stub.c intercept/cuda/cuda_functions.inc
	$(call say,STUB,$(libcuda_stub))
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -shared -nostdlib -Wl,-soname,libcuda.so.1 -o $@ $<

# The stand-in libcuda.so.1 that runs on the simulated GPU; programs find it by LD_LIBRARY_PATH.
libcuda_standin := lib/sim/libcuda.so.1
libcuda_standin_sources := $(call below,intercept/sim/libcuda,*.cc)
libcuda_standin_objects := $(call compiled,$(libcuda_standin_sources))
all_objects += $(libcuda_standin_objects)
extra_targets += $(O)/$(libcuda_standin)
$(O)/$(libcuda_standin): $(libcuda_standin_objects) $(addprefix $(O)/,lib/libsimclient.a $(formatting)) $(compat_object) intercept/sim/libcuda/libcuda.map
	$(call say,LINK,$(libcuda_standin))
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS) -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete -Wl,--version-script=intercept/sim/libcuda/libcuda.map $(if $(SAN),,-Wl$(comma)--no-undefined) -o $@ $(filter %.o %.a,$^)
