# SPDX-License-Identifier: Apache-2.0
# The real cuda.h, only to compare with.
cuda_include := $(firstword $(wildcard $(CUDA_HOME)/include/cuda.h /usr/local/cuda/include/cuda.h))
$(O)/obj/tests/intercept/cuda_abi_real.o: CPPFLAGS += $(if $(cuda_include),-isystem $(dir $(cuda_include)))
$(call gtest,cuda_abi_test,tests/intercept/cuda_abi_test.cc tests/intercept/cuda_abi_ours.cc tests/intercept/cuda_abi_real.cc)
