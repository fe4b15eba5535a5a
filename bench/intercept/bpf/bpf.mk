# SPDX-License-Identifier: Apache-2.0
# Not a Google Benchmark: it loads and unloads the probe between measurements. Run it as root.
$(eval $(call link_rule,bin/bench/probe_cost,bench/intercept/bpf/probe_cost.cc bench/run_file.cc tests/intercept/bpf/fake_driver.cc,lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS) -lfuse3))
