# SPDX-License-Identifier: Apache-2.0
$(call program,bin/bench/launch_cost,bench/intercept/shim/launch_cost.cc,lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(O)/bin/bench/launch_cost: | $(O)/$(shim_library) $(O)/$(fake_driver)
