# SPDX-License-Identifier: Apache-2.0
# The real cuda.h, only to compare with.
cuda_include := $(firstword $(wildcard $(CUDA_HOME)/include/cuda.h /usr/local/cuda/include/cuda.h))
$(O)/obj/tests/intercept/cuda/cuda_abi_real.o: CPPFLAGS += $(if $(cuda_include),-isystem $(dir $(cuda_include)))
alone += tests/intercept/cuda/%
$(call gtest,cuda_abi_test,tests/intercept/cuda/cuda_abi_test.cc tests/intercept/cuda/cuda_abi_ours.cc tests/intercept/cuda/cuda_abi_real.cc)

# The stand-in is loaded from where it was built, whatever driver the machine has.
standin_rpath := -Wl,--disable-new-dtags -Wl,-rpath,'$$$$ORIGIN/../../lib/sim'
$(call gtest,cuda_standin_test,$(wildcard tests/intercept/sim/libcuda/*.cc tests/intercept/shim/graphs/*.cc) intercept/shim/graphs/remake.cc,lib/libsim.a lib/libshmctl.a $(libcuda_standin),$(standin_rpath))
