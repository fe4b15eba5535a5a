# SPDX-License-Identifier: Apache-2.0
# A driver without a GPU, programs that look for it in every way, and the tests that run them with
# the shim preloaded.
# Neither is ever sanitized: they are what a user's machine has.
fake_driver := lib/fake/libcuda.so.1
shim_plain := -std=c++23 $(WARN) -O1 -g1 -fPIC
extra_targets += $(O)/$(fake_driver)
$(O)/$(fake_driver): tests/shim/fake_driver.cc tests/shim/fake_driver.h intercept/shim/hooks.def
	$(call say,LINK,$(fake_driver))
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(shim_plain) -fvisibility=hidden -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o $@ $<

define shim_probe_rule
extra_targets += $(O)/bin/tests/$(1)
$(O)/bin/tests/$(1): tests/shim/probe.cc tests/shim/fake_driver.h intercept/shim/hooks.def $(2)
	$$(call say,LINK,bin/tests/$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(CPPFLAGS) $$(shim_plain) $(3) -pthread -static-libstdc++ -o $$@ $$< $(2)
endef
$(eval $(call shim_probe_rule,shim_probe,))
$(eval $(call shim_probe_rule,shim_probe_linked,$(O)/$(fake_driver),-DGS_LINKED))

# The real header, only to compare with (cuda_include: tests/intercept/cuda.mk).
$(O)/obj/tests/shim/abi_real.o: CPPFLAGS += $(if $(cuda_include),-isystem $(dir $(cuda_include)))
$(call gtest,shim_test,tests/shim/shim_rig.cc tests/shim/abi_real.cc $(addprefix tests/shim/,gate_test.cc library_test.cc standin_test.cc ways_test.cc),lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/shim_test: | $(addprefix $(O)/,$(shim_library) $(fake_driver) bin/tests/shim_probe bin/tests/shim_probe_linked bin/gpushare-sim $(libcuda_standin) bin/workloads/hash bin/workloads/copy bin/workloads/launch bin/workloads/order bin/workloads/crowd bin/workloads/sms)

# Plays the agent for one program, on the simulated GPU and on a real one.
$(call program,bin/tests/shim_drive,tests/shim/drive.cc tests/workloads/flags.cc,lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/shim_drive: | $(O)/$(shim_library)
