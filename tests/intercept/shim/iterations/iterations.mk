# SPDX-License-Identifier: Apache-2.0
iteration_sources := $(wildcard intercept/shim/iterations/iteration*.cc)
$(call gtest,iteration_test,$(wildcard tests/intercept/shim/iterations/iteration_*.cc) $(iteration_sources))
# The shim's own sources, in the test program: with a slot and a clock of its own, and sanitized.
$(call gtest,progress_test,tests/intercept/shim/iterations/progress_test.cc intercept/shim/iterations/progress.cc intercept/shim/link/gate.cc $(iteration_sources))
