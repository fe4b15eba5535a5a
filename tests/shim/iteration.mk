# SPDX-License-Identifier: Apache-2.0
iteration_sources := $(wildcard intercept/shim/iteration*.cc)
$(call gtest,iteration_test,$(wildcard tests/shim/iteration_*.cc) $(iteration_sources))
# The shim's own sources, in the test program: with a slot and a clock of its own, and sanitized.
$(call gtest,progress_test,tests/shim/progress_test.cc intercept/shim/progress.cc intercept/shim/gate.cc $(iteration_sources))
