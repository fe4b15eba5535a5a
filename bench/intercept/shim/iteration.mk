# SPDX-License-Identifier: Apache-2.0
iteration_programs := $(filter-out %_test.cc,$(wildcard tests/intercept/shim/iterations/iteration_*.cc))
$(call gbench,iteration_bench,bench/intercept/shim/iteration_bench.cc $(iteration_programs) $(wildcard intercept/shim/iterations/iteration*.cc))
$(call program,bin/bench/iteration_report,bench/intercept/shim/iteration_report.cc $(iteration_programs) $(wildcard intercept/shim/iterations/iteration*.cc))
