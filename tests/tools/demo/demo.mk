# SPDX-License-Identifier: Apache-2.0
# What demo_test starts, besides the tools; it is not run under sanitizers.
ifeq ($(SAN),)
$(O)/bin/tests/tools_test: | $(O)/bin/gpushare-demo $(O)/bin/gpushared $(O)/bin/gpushare-sim $(addprefix $(O)/bin/workloads/,spin endless periodic) $(O)/$(libcuda_standin)
endif
