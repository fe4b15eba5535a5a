# SPDX-License-Identifier: Apache-2.0
iteration_sources := $(wildcard intercept/shim/iteration*.cc)
$(call gtest,iteration_test,$(wildcard tests/shim/iteration_*.cc) $(iteration_sources))
