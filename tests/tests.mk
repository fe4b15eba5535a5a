# SPDX-License-Identifier: Apache-2.0
include $(filter-out tests/tests.mk,$(call below,tests,*.mk))
