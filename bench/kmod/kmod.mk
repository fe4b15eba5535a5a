# SPDX-License-Identifier: Apache-2.0
$(call gbench,kmod_bench,$(wildcard bench/kmod/*.cc),)
