# SPDX-License-Identifier: Apache-2.0
# The driver's public headers (a checkout of open-gpu-kernel-modules), only to compare with.
OGKM_DIR ?=
abi_objects := $(call objects,$(wildcard tests/intercept/nvrm/abi/*.cc))
$(abi_objects): $(call parts,ogkm,headers of $(OGKM_DIR))
ifneq ($(OGKM_DIR),)
$(abi_objects): CPPFLAGS += -DGS_OGKM=$(or $(shell sed -n 's/^NVIDIA_VERSION = \([0-9]*\).*/\1/p' $(OGKM_DIR)/version.mk),$(error $(OGKM_DIR)/version.mk names no version))
$(filter %/real.o,$(abi_objects)): CPPFLAGS += -isystem $(OGKM_DIR)/src/common/sdk/nvidia/inc -isystem $(OGKM_DIR)/src/nvidia/arch/nvalloc/unix/include
endif
.PHONY: test-driver-headers
test-driver-headers:  ## our declarations beside the public headers of each series of the driver (OGKM=a git repository of open-gpu-kernel-modules)
	@+tests/intercept/nvrm/abi/each_series.sh "$(MAKE)" $(O) '$(OGKM)'
alone += tests/intercept/nvrm/abi/%
$(call gtest,nvrm_abi_test,$(wildcard tests/intercept/nvrm/abi/*.cc))
nvrm_sources := $(wildcard intercept/nvrm/*.cc intercept/*.cc)
nvrm_test_sources := $(filter-out %/decode_test.cc,$(wildcard tests/intercept/nvrm/*_test.cc))
$(call gtest,nvrm_test,$(nvrm_test_sources) $(wildcard tests/intercept/nvrm/fake_rm*.cc) $(nvrm_sources),lib/libshmctl.a)
