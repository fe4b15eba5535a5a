# SPDX-License-Identifier: Apache-2.0
# A driver without a GPU, programs that look for it in every way, and the tests that run them with
# the shim preloaded.
# Neither is ever sanitized: they are what a user's machine has. So they bring their own fmt.
fake_driver := lib/fake/libcuda.so.1
shim_plain := -std=c++23 $(WARN) -O1 -g1 -fPIC
extra_targets += $(O)/$(fake_driver)
$(unsanitized)/$(fake_driver): tests/intercept/shim/driver/fake_driver.cc tests/intercept/shim/driver/fake_driver.h intercept/shim/driver/hooks.def
	$(call say,LINK,$(fake_driver))
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(shim_plain) -fvisibility=hidden -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o $@ $<
$(call never_sanitized,$(fake_driver) bin/tests/shim_probe bin/tests/shim_probe_linked)

define shim_probe_rule
extra_targets += $(O)/bin/tests/$(1)
$(unsanitized)/bin/tests/$(1): tests/intercept/shim/driver/probe.cc tests/intercept/shim/driver/fake_driver.h intercept/shim/driver/hooks.def $(2)
	$$(call say,LINK,bin/tests/$(1))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(CPPFLAGS) -DFMT_HEADER_ONLY $$(shim_plain) $(3) -pthread -static-libstdc++ -o $$@ $$< $(2)
endef
$(eval $(call shim_probe_rule,shim_probe,))
$(eval $(call shim_probe_rule,shim_probe_linked,$(unsanitized)/$(fake_driver),-DGS_LINKED))

# gpushare.h in both languages, as strictly as a user may have it.
define api_probe_rule
extra_targets += $(O)/bin/tests/$(1)
$(O)/bin/tests/$(1): tests/intercept/shim/calls/api_probe.c intercept/api/gpushare.h
	$$(call say,LINK,bin/tests/$(1))
	@mkdir -p $$(@D)
	$$(Q)$(2) -I. -Wall -Wextra -Wshadow -Werror -Wpedantic -Wconversion -O1 -o $$@ $$<
endef
$(eval $(call api_probe_rule,api_probe_c,$(CC) -std=gnu99))
$(eval $(call api_probe_rule,api_probe_cpp,g++ -x c++ -std=c++11))
extra_targets += $(O)/lib/python/gpushare.py
$(O)/lib/python/gpushare.py: intercept/api/gpushare.py
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(foreach name,beside execs hostile meet,$(call program,bin/workloads/$(name),tests/intercept/shim/$(name).cc $(addprefix tests/workloads/common/,flags.cc gpu_session.cc),$(libcuda_stub) lib/libshmctl.a))

# The real header, only to compare with (cuda_include: tests/intercept/cuda/cuda.mk).
$(O)/obj/tests/intercept/shim/driver/abi_real.o: CPPFLAGS += $(if $(cuda_include),-isystem $(dir $(cuda_include)))
$(call gtest,shim_test,tests/intercept/shim/shim_rig.cc tests/intercept/shim/driver/abi_real.cc $(addprefix tests/intercept/shim/,calls/api_test.cc calls/boundary_test.cc driver/library_test.cc driver/ways_test.cc link/gate_test.cc link/mps_test.cc credit/credit_gate_test.cc standin_test.cc hostile_test.cc graphs_test.cc meet_test.cc),lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/shim_test: | $(addprefix $(O)/,$(shim_library) $(fake_driver) bin/tests/shim_probe bin/tests/shim_probe_linked bin/gpushare-sim $(libcuda_standin) bin/workloads/hash bin/workloads/copy bin/workloads/launch bin/workloads/order bin/workloads/crowd bin/workloads/sms bin/workloads/steps bin/workloads/within bin/workloads/spin bin/workloads/beside bin/workloads/execs bin/workloads/hostile bin/workloads/meet bin/workloads/conformance bin/tests/shim_drive bin/tests/api_probe_c bin/tests/api_probe_cpp lib/python/gpushare.py)

# The shim's own sources, over a driver that runs nothing, and sanitized.
$(call gtest,streams_test,$(wildcard tests/intercept/shim/streams/*.cc) tests/support/stepped.cc $(wildcard intercept/shim/streams/*.cc) intercept/shim/driver/bypass.cc $(addprefix intercept/shim/graphs/,context_waits.cc exec.cc launches.cc remake.cc))

# The same with its credit gate.
$(call gtest,credits_test,$(wildcard tests/intercept/shim/credit/credits_*.cc) intercept/shim/credit/credits.cc intercept/shim/credit/lengths.cc)

# What waits and launches say of their needs.
$(call gtest,needs_test,tests/intercept/shim/calls/needs_test.cc intercept/shim/calls/waits.cc)

# Plays the agent for one program, on the simulated GPU and on a real one.
$(call program,bin/tests/shim_drive,tests/intercept/shim/drive.cc tests/intercept/shim/alternate.cc tests/workloads/common/flags.cc,lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/tests/shim_drive: | $(O)/$(shim_library)
