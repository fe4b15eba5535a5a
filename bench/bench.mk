# SPDX-License-Identifier: Apache-2.0
include $(filter-out bench/bench.mk,$(call below,bench,*.mk))
