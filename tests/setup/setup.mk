# SPDX-License-Identifier: Apache-2.0
# Not in sanitized builds: what `make deb` makes, installed in a copy of this machine, a tree that is moved, and what `make uninstall` removes.
ifeq ($(SAN),)
$(call script_test,package_test,tests/setup/package_test.sh,$(if $(shell command -v dh),$(O)/deb/packed))
$(call script_test,moved_tree_test,tests/setup/moved_tree_test.sh)
$(call script_test,uninstall_test,tests/setup/uninstall_test.sh)

# Where the minimal roots are kept; debootstrap makes one once.
ROOTS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gpushare/roots
RELEASE ?= bookworm
.PHONY: test-install
test-install:  ## each command of docs/install.md on a minimal machine (root; debootstrap; RELEASE=bookworm, COLD=1: no ccache; 10 minutes to half an hour)
	@python3 tests/setup/install/install_test.py $(abspath $(O)) $(ROOTS) --release $(RELEASE) $(if $(COLD),--cold)
endif
