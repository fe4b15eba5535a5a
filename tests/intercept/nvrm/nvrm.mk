# SPDX-License-Identifier: Apache-2.0
# The driver's public headers (a checkout of open-gpu-kernel-modules), only to compare with.
OGKM_DIR ?=
$(O)/obj/tests/intercept/nvrm/abi/real.o: CPPFLAGS += $(if $(OGKM_DIR),-isystem $(OGKM_DIR)/src/common/sdk/nvidia/inc -isystem $(OGKM_DIR)/src/nvidia/arch/nvalloc/unix/include)
$(call gtest,nvrm_abi_test,$(wildcard tests/intercept/nvrm/abi/*.cc))
nvrm_sources := $(filter-out %/decode.cc,$(wildcard intercept/nvrm/*.cc)) $(wildcard intercept/*.cc)
nvrm_test_sources := $(filter-out %/decode_test.cc,$(wildcard tests/intercept/nvrm/*_test.cc))
$(call gtest,nvrm_test,$(nvrm_test_sources) $(wildcard tests/intercept/nvrm/fake_rm*.cc) $(nvrm_sources),lib/libshmctl.a)
