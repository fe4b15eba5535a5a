# SPDX-License-Identifier: Apache-2.0
$(call gtest,bench_test,$(wildcard tests/bench/*_test.cc) tests/tools/support/run_tool.cc bench/gpu/report.cc bench/run_file.cc,lib/libshmctl.a)
$(O)/bin/tests/bench_test: | $(O)/bin/bench/gpu-scenarios $(O)/bin/gpushare $(O)/bin/gpushared $(O)/bin/gpushare-sim $(addprefix $(O)/bin/workloads/,spin hash copy endless) $(O)/$(libcuda_standin)
