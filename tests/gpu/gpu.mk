# SPDX-License-Identifier: Apache-2.0
# Ring 3, on a real GPU: these programs are built everywhere and run by `make test-gpu`.
$(call program,bin/gpu-tests/rm_gpu_test,tests/gpu/rm_gpu_test.cc tests/workloads/common/output.cc,lib/libintercept.a lib/libshmctl.a,$(GTEST_LIBS) $(BPF_LIBS))
$(call program,bin/gpu-tests/conformance_gpu_test,tests/gpu/conformance_gpu_test.cc tests/intercept/shim/shim_rig.cc,lib/libintercept.a lib/libshmctl.a,$(GTEST_LIBS) $(BPF_LIBS))
$(O)/bin/gpu-tests/conformance_gpu_test: | $(O)/$(shim_library) $(O)/bin/workloads/conformance

# $(call preloaded,NAME): makes a library of tests/gpu/NAME.cc, which a script beside it preloads into programs.
define preloaded
all_objects += $(call objects,tests/gpu/$(1).cc)
extra_targets += $(O)/lib/tests/lib$(1).so
$(O)/lib/tests/lib$(1).so: $(call objects,tests/gpu/$(1).cc) $(compat_object)
	$$(call say,LINK,$$(@:$(O)/%=%))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(LDFLAGS) -shared -o $$@ $$^
endef
$(eval $(call preloaded,control_log))
$(eval $(call preloaded,call_mix))
