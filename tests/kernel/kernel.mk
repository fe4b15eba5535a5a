# SPDX-License-Identifier: Apache-2.0
# Ring 2: real kernels under QEMU (README.md). Part of `make test`; not in sanitized builds, whose
# programs need more of a machine than the guest is.
ifeq ($(SAN),)
# Headers of the newest kernel that can be booted; without any the ring skips.
kernel_build := $(lastword $(shell ls -dv /lib/modules/*-cloud-amd64/build 2>/dev/null))

$(call program,bin/tests/rm_client,tests/kernel/rm_client.cc,,-static)
$(call program,bin/tests/rm_fuzz,tests/kernel/rm_fuzz.cc,,-static)
$(call program,bin/tests/door,tests/kernel/door.cc,,-static)

# $(call standin_rule,FOLDER,FUNCTION): the stand-in driver, with its ioctl function called FUNCTION.
# Our own O= and V= would mean something else to the kernel's make.
define standin_rule
kernel_modules += $(O)/kernel/$(1)/nvidia.ko
$(O)/kernel/$(1)/nvidia.ko: $(wildcard tests/kernel/nvidia/*) intercept/nvrm/abi.h
	$$(call say,KMOD,$$@)
	@mkdir -p $$(@D)
	$$(Q)cp $$(filter tests/kernel/nvidia/%,$$^) $$(@D)
	$$(Q)env -u MAKEFLAGS $$(MAKE) -s -C $(kernel_build) M=$$(abspath $$(@D)) REPO=$(CURDIR) STANDIN_ENTRY=$(2) W=1 modules >$$(@D)/build.log 2>&1 || { cat $$(@D)/build.log; exit 1; }
endef
# The module for the kernel that is booted, which need not be the one that kmod.mk builds it for.
ring_module := $(O)/kernel/gpushare/gpushare.ko
$(ring_module): $(kmod_sources)
	$(call say,KMOD,$@)
	@mkdir -p $(@D)/uapi
	$(Q)for file in $(^:kmod/%=%); do cp kmod/$$file $(@D)/$$file; done
	$(Q)env -u MAKEFLAGS $(MAKE) -s -C $(kernel_build) M=$(abspath $(@D)) W=1 modules >$(@D)/build.log 2>&1 || { cat $(@D)/build.log; exit 1; }

# The numbers of the controls that the module lets nobody make, from its own table.
refused_controls := $(O)/kernel/refused-controls
$(refused_controls): kmod/refusals.h kmod/rm_abi.h
	@mkdir -p $(@D)
	$(Q)printf '#include "kmod/refusals.h"\n#define GS_SHOW(control, rule, reason) control rule;\nGS_REFUSALS(GS_SHOW)\n' | $(CC) -I. -E -P - | grep -oE '0x[0-9A-F]+u NEVER' | sed 's/u NEVER//' > $@

ifneq ($(kernel_build),)
kernel_modules += $(ring_module) $(refused_controls)
$(eval $(call standin_rule,nvidia,nvidia_unlocked_ioctl))
$(eval $(call standin_rule,nvidia-535,nvidia_frontend_unlocked_ioctl))
$(eval $(call standin_rule,nvidia-unknown,nvidia_renamed_ioctl))
endif

kernel_image := $(O)/kernel/image/vmlinuz
$(kernel_image):
	@tests/kernel/qemu/fetch-kernel.sh $(@D)

# A program beside the others, so that `make test` finds and counts it.
kernel_test := $(O)/bin/tests/kernel_test
$(kernel_test): tests/kernel/kernel.mk | $(kernel_image) $(kernel_modules) $(addprefix $(O)/bin/,gpushared gpushare tests/rm_client tests/rm_fuzz tests/door tests/kmod_fuzz tests/kmod_device)
	@mkdir -p $(@D)
	@printf '#!/bin/sh\nexec %s/tests/kernel/run.sh %s\n' '$(CURDIR)' '$(abspath $(O))' > $@
	@chmod +x $@
tests: $(kernel_test) $(kernel_modules)

.PHONY: test-kernel
test-kernel: $(kernel_test) $(kernel_modules)  ## the module, the probe and the agent in kernels under QEMU
	@$(kernel_test)
endif
