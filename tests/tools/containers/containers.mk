# SPDX-License-Identifier: Apache-2.0
# Containers of the real podman, runc, Docker and containerd, on the simulated GPU. Not in sanitized builds.
ifeq ($(SAN),)
containers_test_needs = $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-sim bin/workloads/endless lib/sim/libcuda.so.1 lib/libgpushare.so)
$(call script_test,containers_test,python3 tests/tools/containers/containers_test.py,$(containers_test_needs),"$$$$@")

.PHONY: test-containers
test-containers: $(O)/bin/tests/containers_test $(containers_test_needs)  ## containers of the real podman, runc, Docker and containerd in one machine of their own (root)
	@$< $(T)
endif
