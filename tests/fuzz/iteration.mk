# SPDX-License-Identifier: Apache-2.0
$(call fuzzer,iteration_fuzz,tests/fuzz/iteration_fuzz.cc $(wildcard intercept/shim/iterations/iteration*.cc))
