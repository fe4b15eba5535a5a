# SPDX-License-Identifier: Apache-2.0
# The driver's public headers (a checkout of open-gpu-kernel-modules), only to compare with.
OGKM_DIR ?=
$(O)/obj/tests/intercept/nvrm_abi_real.o: CPPFLAGS += $(if $(OGKM_DIR),-isystem $(OGKM_DIR)/src/common/sdk/nvidia/inc -isystem $(OGKM_DIR)/src/nvidia/arch/nvalloc/unix/include)
$(call gtest,nvrm_abi_test,$(wildcard tests/intercept/nvrm_abi_*.cc))

