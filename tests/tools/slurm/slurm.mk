# SPDX-License-Identifier: Apache-2.0
# Slurm's shards, with the real Slurm. Not in sanitized builds.
ifeq ($(SAN),)
# A program beside the others, so that `make test` finds and counts it.
slurm_test := $(O)/bin/tests/slurm_test
slurm_test_needs = $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-sim bin/workloads/endless lib/sim/libcuda.so.1) $(spank_built)
$(slurm_test): tests/tools/slurm/slurm.mk | $(slurm_test_needs)
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec python3 %s/tests/tools/slurm/slurm_test.py %s "$$@"\n' '$(CURDIR)' '$(abspath $(O))' > $@
	@chmod +x $@
other_tests += $(slurm_test)

.PHONY: test-slurm
test-slurm: $(slurm_test) $(slurm_test_needs)  ## jobs of the real Slurm in one machine of its own, on the simulated GPU (root)
	@$(slurm_test)
endif
