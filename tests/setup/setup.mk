# SPDX-License-Identifier: Apache-2.0
# What `make deb` makes, installed in a copy of this machine. Not in sanitized builds.
ifeq ($(SAN),)
# A program beside the others, so that `make test` finds and counts it.
package_test := $(O)/bin/tests/package_test
$(package_test): tests/setup/setup.mk | $(if $(shell command -v dh),$(O)/deb/packed)
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec %s/tests/setup/package_test.sh %s\n' '$(CURDIR)' '$(abspath $(O))' > $@
	@chmod +x $@
other_tests += $(package_test)
endif
