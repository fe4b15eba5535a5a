# SPDX-License-Identifier: Apache-2.0
# Ring 3: on a real GPU. Built everywhere, run by `make test-gpu`.
$(call program,bin/gpu-tests/rm_gpu_test,tests/gpu/rm_gpu_test.cc tests/support/child.cc tests/workloads/output.cc,lib/libintercept.a lib/libshmctl.a,$(GTEST_LIBS) $(BPF_LIBS))
$(call program,bin/gpu-tests/conformance_gpu_test,tests/gpu/conformance_gpu_test.cc tests/shim/shim_rig.cc,lib/libintercept.a lib/libshmctl.a,$(GTEST_LIBS) $(BPF_LIBS))
$(O)/bin/gpu-tests/conformance_gpu_test: | $(O)/$(shim_library) $(O)/bin/workloads/conformance

# Preloaded into programs by tests/gpu/start_controls.sh.
control_log := $(O)/lib/tests/libcontrol_log.so
all_objects += $(call objects,tests/gpu/control_log.cc)
extra_targets += $(control_log)
$(control_log): $(call objects,tests/gpu/control_log.cc)
	$(call say,LINK,$(@:$(O)/%=%))
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS) -shared -o $@ $^
