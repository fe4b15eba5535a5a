# SPDX-License-Identifier: Apache-2.0
# Ring 2: real kernels under QEMU (README.md). Part of `make test`; not in sanitized builds, whose
# programs need more of a machine than the guest is.
ifeq ($(SAN),)
# Headers of the newest kernel that can be booted; without any the ring skips.
kernel_build := $(lastword $(shell ls -dv /lib/modules/*-cloud-amd64/build 2>/dev/null))

$(call program,bin/tests/rm_client,tests/kernel/rm_client.cc,,-static)

# $(call standin_rule,FOLDER,FUNCTION): the stand-in driver, with its ioctl function called FUNCTION.
# Our own O= and V= would mean something else to the kernel's make.
define standin_rule
standins += $(O)/kernel/$(1)/nvidia.ko
$(O)/kernel/$(1)/nvidia.ko: $(wildcard tests/kernel/nvidia/*) intercept/nvrm/abi.h
	$$(call say,KMOD,$$@)
	@mkdir -p $$(@D)
	$$(Q)cp $$(filter tests/kernel/nvidia/%,$$^) $$(@D)
	$$(Q)env -u MAKEFLAGS $$(MAKE) -s -C $(kernel_build) M=$$(abspath $$(@D)) REPO=$(CURDIR) STANDIN_ENTRY=$(2) W=1 modules >$$(@D)/build.log 2>&1 || { cat $$(@D)/build.log; exit 1; }
endef
ifneq ($(kernel_build),)
$(eval $(call standin_rule,nvidia,nvidia_unlocked_ioctl))
$(eval $(call standin_rule,nvidia-535,nvidia_frontend_unlocked_ioctl))
$(eval $(call standin_rule,nvidia-unknown,nvidia_renamed_ioctl))
endif

# A program beside the others, so that `make test` finds and counts it.
kernel_test := $(O)/bin/tests/kernel_test
$(kernel_test): tests/kernel/kernel.mk | $(standins) $(addprefix $(O)/bin/,gpushared gpushare tests/rm_client)
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec %s/tests/kernel/run.sh %s\n' '$(CURDIR)' '$(abspath $(O))' > $@
	@chmod +x $@
tests: $(kernel_test) $(standins)

.PHONY: test-kernel
test-kernel: $(kernel_test) $(standins)  ## the module, the probe and the agent in kernels under QEMU
	@$(kernel_test)
endif
