# SPDX-License-Identifier: Apache-2.0
$(call gbench,iteration_bench,bench/shim/iteration_bench.cc tests/shim/iteration_programs.cc $(wildcard intercept/shim/iteration*.cc))
$(call program,bin/bench/iteration_report,bench/shim/iteration_report.cc tests/shim/iteration_programs.cc $(wildcard intercept/shim/iteration*.cc))
