# SPDX-License-Identifier: Apache-2.0
# `make lint`: each part also alone, as lint-PART. What a machine lacks is named, and left out.
#   TIDY='FILE...'   clang-tidy over these, in place of the product's
#   BASE=COMMIT      what lint-changed compares with (origin/main)
# Clang-tidy looks at all that a file includes, which takes some 4 s for a file, and its static analyzer
# as long again and more. So `make lint` has the product's files and no analyzer, lint-changed has all
# checks for what was changed, tests too, and lint-all has all checks for all files (every night).
sources := $(shell git ls-files '*.cc' '*.h' 2>/dev/null)
kernel_c := $(shell git ls-files 'kmod/*.[ch]' 2>/dev/null)
plugin_c := $(shell git ls-files 'tools/slurm/*.c' 2>/dev/null)
TIDY ?= $(filter sched/%.cc shmctl/%.cc intercept/%.cc tools/%.cc,$(sources))
BASE ?= origin/main
.PHONY: lint check-includes lint-format lint-tidy lint-changed lint-all lint-kernel lint-shell format
lint: check-includes lint-format lint-shell lint-kernel lint-tidy  ## floors, formatting, shellcheck, the kernel's own checks, clang-tidy

check-includes:  ## the floors of tools/setup/floors.txt: no include goes up, no folder is too full
	@tools/setup/check_includes.py

lint-format:
	$(CLANG_FORMAT) --dry-run --Werror $(sources) $(filter %.c,$(kernel_c)) $(plugin_c)

# libstdc++'s own stable_sort calls what C++17 deprecates.
tidy = printf '%s\n' $(2) | xargs -r -P $(shell nproc) -n 1 sh -c '$(CLANG_TIDY) --quiet $(1) "$$@" -- -std=c++23 -Wno-deprecated-declarations $(CPPFLAGS) -DGS_VERSION=\"\" -DGS_COMMIT=\"\" 2>$(O)/tidy.$$$$ || { cat $(O)/tidy.$$$$; rm $(O)/tidy.$$$$; exit 1; }; rm $(O)/tidy.$$$$' sh
# What is generated and included.
tidy_needs := $(O)/gen/intercept/bpf/driver_probe.skel.h $(O)/gen/intercept/bpf/lineage.skel.h
lint-tidy: $(tidy_needs)
	@$(call tidy,--checks=-clang-analyzer-*,$(TIDY))
lint-changed: $(tidy_needs)  ## all checks of clang-tidy, for what differs from BASE=origin/main
	@files=$$(tools/setup/changed_sources.sh $(BASE)) && $(call tidy,,$$files)
lint-all: $(tidy_needs)  ## all checks of clang-tidy, for all files (an hour of two processors)
	@$(call tidy,,$(filter %.cc,$(sources)))

# The suites of tests/kernel are read into lib.sh, whose names they use, by busybox' shell.
guest_scripts := $(shell git ls-files 'tests/kernel/guest/*.sh' 'tests/kernel/guest/named/*.sh' tests/kernel/lib.sh tests/kernel/qemu/guest-init.sh 2>/dev/null)
shell_scripts := $(filter-out $(guest_scripts),$(shell git ls-files '*.sh' .ci/run 'tools/setup/debian/*.p*' 2>/dev/null))
lint-shell:
ifneq ($(shell command -v shellcheck),)
	shellcheck --severity=warning --exclude=SC1007 $(shell_scripts)
	shellcheck --severity=warning --shell=dash --exclude=SC2154,SC1010,SC2164,SC2187,SC2046,SC2283 $(guest_scripts)
else
	@echo 'lint: shellcheck is missing (package shellcheck): the scripts are not looked at'
endif

# checkpatch does not know a header of user space too (BIT_MACRO), a module outside the kernel's tree
# (LINUX_VERSION_CODE, CONSTANT_COMPARISON), functions in assembler (AVOID_EXTERNS), and a macro that
# is a table.
CHECKPATCH ?= $(O)/checkpatch/checkpatch.pl
checkpatch = perl $(CHECKPATCH) --no-tree --strict --terse --no-summary --quiet --max-line-length=100 --show-types
patch_known := LINUX_VERSION_CODE,CONSTANT_COMPARISON,BIT_MACRO,AVOID_EXTERNS
# Macros that are tables, and what is made of them.
patch_tables := kmod/rm/refusals.h kmod/uapi/settings.h kmod/sysfs/tenant.c
patch_table := COMPLEX_MACRO,MULTISTATEMENT_MACRO_USE_DO_WHILE,TRAILING_SEMICOLON,MACRO_ARG_REUSE,SPACING
kernel_doc = $(firstword $(wildcard $(KDIR)/scripts/kernel-doc $(KDIR)/source/scripts/kernel-doc))
$(O)/checkpatch/checkpatch.pl:
	@tools/setup/fetch-checkpatch.sh $(@D)

lint-kernel: $(CHECKPATCH)
	@if [ -e $(CHECKPATCH) ]; then \
	  echo checkpatch --strict && $(checkpatch) --ignore $(patch_known) -f $(filter-out $(patch_tables),$(kernel_c)) && \
	  $(checkpatch) --ignore $(patch_known),$(patch_table) -f $(patch_tables); \
	else echo 'lint: there is no checkpatch.pl (CHECKPATCH=FILE): left out'; fi
ifneq ($(KDIR),)
	@[ -z '$(kernel_doc)' ] || { echo kernel-doc; for file in $(kernel_c); do perl $(kernel_doc) -none -Werror $$file || exit 1; done; }
	@command -v sparse >/dev/null || echo 'lint: sparse is missing (package sparse): left out'
	@echo 'W=1$(if $(shell command -v sparse), C=2)'; rm -rf $(O)/lint && mkdir -p $(O)/lint && cp -r kmod $(O)/lint && \
	  env -u MAKEFLAGS -u MFLAGS make -s -C $(KDIR) M=$(abspath $(O)/lint/kmod) W=1 $(if $(shell command -v sparse),C=2) modules \
	    >$(O)/lint/log 2>&1 || { cat $(O)/lint/log; exit 1; }
	@! grep -v $(kmod_noise) $(O)/lint/log | grep -v '^  *CHECK '
else
	@echo 'lint: no kernel headers are installed: no W=1, sparse and kernel-doc'
endif

format:  ## apply the formatting
	$(CLANG_FORMAT) -i $(sources) $(filter %.c,$(kernel_c)) $(plugin_c)

# Of the kernel's module there are no commands: kbuild has its own. Each file is named by itself.
.PHONY: compile_commands objects
objects: $(sort $(all_objects))
compile_commands:  ## $(O)/compile_commands.json, for clangd and other tools (after a first make)
	@mkdir -p $(O)
	@$(MAKE) --no-print-directory --always-make --dry-run V=1 TOGETHER=1 objects | tools/setup/compile_commands.py > $(O)/compile_commands.json
