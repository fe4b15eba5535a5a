# SPDX-License-Identifier: Apache-2.0
# What demo_test starts, besides the tools; it is not run under sanitizers.
ifeq ($(SAN),)
$(O)/bin/tests/tools_test: | $(demo_needs)
endif
