# SPDX-License-Identifier: Apache-2.0
# Others name the workloads.
include tests/workloads/workloads.mk $(filter-out tests/tests.mk tests/workloads/workloads.mk,$(call below,tests,*.mk))
