# SPDX-License-Identifier: Apache-2.0
iteration_sources := $(wildcard intercept/shim/iterations/iteration*.cc)
progress_sources := $(filter-out %/copies.cc,$(wildcard intercept/shim/iterations/*.cc)) intercept/shim/link/gate.cc
$(call gtest,iteration_test,$(wildcard tests/intercept/shim/iterations/iteration_*.cc) tests/intercept/shim/iterations/phase_test.cc $(iteration_sources))
# The shim's own sources, in the test program: with a slot and a clock of its own, and sanitized.
$(call gtest,progress_test,tests/intercept/shim/iterations/progress_test.cc $(progress_sources))
