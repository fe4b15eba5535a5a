# SPDX-License-Identifier: Apache-2.0
$(call gbench,iteration_bench,bench/intercept/shim/iteration_bench.cc tests/intercept/shim/iterations/iteration_programs.cc $(wildcard intercept/shim/iterations/iteration*.cc))
$(call program,bin/bench/iteration_report,bench/intercept/shim/iteration_report.cc tests/intercept/shim/iterations/iteration_programs.cc $(wildcard intercept/shim/iterations/iteration*.cc))
