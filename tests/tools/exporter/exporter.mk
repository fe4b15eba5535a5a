# SPDX-License-Identifier: Apache-2.0
# The dashboard by a schema, and all that the exporter says with the real Prometheus. Not in sanitized builds.
ifeq ($(SAN),)
$(call script_test,dashboard_test,python3 tests/tools/exporter/dashboard_test.py,,"$$$$@")
prometheus_test_needs = $(addprefix $(O)/,bin/gpushare bin/gpushared bin/gpushare-exporter bin/gpushare-sim bin/tests/fake_plane bin/workloads/endless lib/sim/libcuda.so.1)
$(call script_test,prometheus_test,python3 tests/tools/exporter/prometheus_test.py,$(prometheus_test_needs),"$$$$@")

# Where Prometheus is that tests/tools/exporter/fetch.sh fetches, once, if none is installed.
prometheus_folder := $(O)/prometheus
.PHONY: test-metrics
test-metrics: $(addprefix $(O)/bin/tests/,prometheus_test dashboard_test tools_test) $(prometheus_test_needs)  ## the exporter, its alerts and its dashboard with the real Prometheus, on the simulated GPU (fetched, not installed)
	@tests/tools/exporter/fetch.sh $(prometheus_folder)
	@PATH="$(abspath $(prometheus_folder))/usr/bin:$$PATH" $(O)/bin/tests/tools_test --gtest_filter='Metrics.*:Exposition.*:Exporter.*:HttpServerTest.*'
	@$(O)/bin/tests/dashboard_test
	@$(O)/bin/tests/prometheus_test
endif
