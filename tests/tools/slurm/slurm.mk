# SPDX-License-Identifier: Apache-2.0
# Slurm's shards, with the real Slurm. Not in sanitized builds.
ifeq ($(SAN),)
slurm_test_needs = $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-sim bin/workloads/endless lib/sim/libcuda.so.1) $(spank_built)
$(call script_test,slurm_test,python3 tests/tools/slurm/slurm_test.py,$(slurm_test_needs),"$$$$@")

.PHONY: test-slurm
test-slurm: $(O)/bin/tests/slurm_test $(slurm_test_needs)  ## jobs of the real Slurm in one machine of its own, on the simulated GPU (root)
	@$<
endif
