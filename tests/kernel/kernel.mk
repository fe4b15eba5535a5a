# SPDX-License-Identifier: Apache-2.0
# Ring 2: real kernels under QEMU (README.md). It is part of `make test`, but not of sanitized builds,
# whose programs need more memory than the guest has.
ifeq ($(SAN),)
# The headers of the newest kernel that can be booted. Without any the ring skips.
kernel_build := $(lastword $(shell ls -dv /lib/modules/*-cloud-amd64/build 2>/dev/null))

$(call program,bin/tests/rm_client,$(addprefix tests/kernel/rm/,client.cc context.cc cost.cc dma_buf.cc escapes.cc handover.cc parallel.cc races.cc),,$(STATIC))
$(call program,bin/tests/rm_fuzz,tests/kernel/rm/fuzz.cc,,$(STATIC))
$(call program,bin/tests/door,tests/kernel/door.cc,,$(STATIC))
$(call program,bin/tests/tsc_khz,tests/kernel/qemu/tsc_khz.cc,)
$(call program,bin/tests/kmod_device,tests/kmod/guest/device_main.cc,,-lgtest -lgtest_main $(STATIC))
$(call program,bin/tests/kmod_fuzz,tests/kmod/guest/fuzz_main.cc,,$(STATIC))
# These are linked statically from the objects of bin/gpushared and bin/gpushare, because under QEMU the
# dynamic loader takes 50 ms of every start.
$(call program,kernel/static/gpushared,sched/daemon/program/gpushared_main.cc,lib/libsched.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS) $(SQLITE_LIBS) $(STATIC))
$(call program,kernel/static/gpushare,tools/cli/main.cc,lib/libviews.a lib/libdemo.a lib/libtools.a lib/libsched.a lib/libintercept.a lib/libshmctl.a,$(STATIC))

# $(call kbuild_rule,FILE.ko,FOLDER,SOURCES,HEADERS,FLAGS): a module out of copies of its sources, which
# lie in FOLDER and its subfolders. Other headers are another module. O= and V= would mean something else to the kernel's make.
define kbuild_rule
$(1): $(3) $(call parts,$(1),$(4) $(5))
	$$(call say,KMOD,$$@)
	@mkdir -p $$(@D)
	$$(Q)cd $(2) && cp --parents $(3:$(2)/%=%) $$(abspath $$(@D))
	$$(Q)env -u MAKEFLAGS $$(MAKE) -s -C $(4) M=$$(abspath $$(@D)) W=1 $(5) modules >$$(@D)/build.log 2>&1 || { cat $$(@D)/build.log; exit 1; }
endef
# $(call standin_rule,RING/FOLDER,HEADERS,FUNCTION): the stand-in driver, whose ioctl function is called
# FUNCTION.
standin_rule = $(eval $(1)/nvidia.ko: intercept/nvrm/abi.h)$(eval $(call kbuild_rule,$(1)/nvidia.ko,tests/kernel/nvidia,$(wildcard tests/kernel/nvidia/*.[ch] tests/kernel/nvidia/Kbuild tests/kernel/nvidia/*/*),$(2),REPO=$(CURDIR) STANDIN_ENTRY=$(3)))
# $(call module_rule,FILE.ko,HEADERS): gpushare.ko. Where kmod.mk builds it for the same headers, it is that one.
module_rule = $(if $(and $(realpath $(KDIR)),$(call same,$(realpath $(2)),$(realpath $(KDIR))),$(call same,$(kmod_flags),)),$(call module_copy_rule,$(1)),$(call kbuild_rule,$(1),kmod,$(kmod_sources),$(2)))
define module_copy_rule
$(1): $(O)/kmod/gpushare.ko
	@mkdir -p $$(@D)
	$$(Q)cp $$< $$@
endef
# The version before, for the suite `upgrade`: the same, with another last character in its number.
# $(call before_rule,FILE,OF THIS VERSION)
define before_rule
$(1): $(2) $(call parts,before,$(VERSION))
	@mkdir -p $$(@D)
	$$(Q)LC_ALL=C sed 's/$(subst .,\.,$(VERSION))/$(shell echo $(VERSION) | sed 's/.$$/x/')/g' $$< >$$@ && chmod --reference=$$< $$@
endef
# $(call other_sources_rule,FOLDER): a module of another interface.
define other_sources_rule
$(1)/%: kmod/%
	@mkdir -p $$(@D)
	$$(Q)sed 's/\(define GPUSHARE_UAPI_VERSION\) .*/\1 999/; s/\(define GS_VERSION\) .*/\1 "9.9.9"/' $$< >$$@
endef
# $(call ring_rules,RING,HEADERS): all modules for one kernel.
ring_modules = $(addprefix $(1)/,gpushare/gpushare.ko before/gpushare.ko other/gpushare.ko livepatch/standin-livepatch.ko beside/forks.ko nvidia/nvidia.ko nvidia-535/nvidia.ko nvidia-unknown/nvidia.ko)
define ring_rules
$(eval $(call module_rule,$(1)/gpushare/gpushare.ko,$(2)))
$(eval $(call kbuild_rule,$(1)/livepatch/standin-livepatch.ko,tests/kernel/livepatch,$(wildcard tests/kernel/livepatch/*),$(2)))
$(eval $(call kbuild_rule,$(1)/beside/forks.ko,tests/kernel/beside,$(wildcard tests/kernel/beside/*),$(2)))
$(eval $(call before_rule,$(1)/before/gpushare.ko,$(1)/gpushare/gpushare.ko))
$(eval $(call other_sources_rule,$(1)/other/src))
$(eval $(call kbuild_rule,$(1)/other/gpushare.ko,$(1)/other/src,$(kmod_sources:kmod/%=$(1)/other/src/%),$(2)))
$(call standin_rule,$(1)/nvidia,$(2),nvidia_unlocked_ioctl)
$(call standin_rule,$(1)/nvidia-535,$(2),nvidia_frontend_unlocked_ioctl)
$(call standin_rule,$(1)/nvidia-unknown,$(2),nvidia_renamed_ioctl)
endef

# The numbers of the controls that the module lets no program make, from its own table.
refused_controls := $(O)/kernel/refused-controls
$(refused_controls): kmod/rm/refusals.h kmod/rm/rm_abi.h
	@mkdir -p $(@D)
	$(Q)printf '#include "kmod/rm/refusals.h"\n#define GS_SHOW(control, rule, reason) control rule;\nGS_REFUSALS(GS_SHOW)\n' | $(CC) -I. -E -P - | grep -oE '0x[0-9A-F]+u NEVER' | sed 's/u NEVER//' > $@

ifneq ($(kernel_build),)
kernel_modules := $(call ring_modules,$(O)/kernel) $(O)/kernel/gpushare-checked/gpushare.ko $(refused_controls)
$(call ring_rules,$(O)/kernel,$(kernel_build))
# The module as the compiler makes it for kernels that check each bool when it is read (Ubuntu's are such).
$(eval $(call kbuild_rule,$(O)/kernel/gpushare-checked/gpushare.ko,kmod,$(kmod_sources),$(kernel_build),KCFLAGS="-fsanitize=bool -fsanitize-undefined-trap-on-error"))
endif

kernel_image := $(O)/kernel/vmlinuz
$(kernel_image):
	@tests/kernel/qemu/fetch-kernel.sh $(@D)

$(foreach program,gpushared gpushare,$(eval $(call before_rule,$(O)/kernel/before/$(program),$(O)/kernel/static/$(program))))
kernel_programs := $(addprefix $(O)/,kernel/static/gpushared kernel/static/gpushare kernel/before/gpushared kernel/before/gpushare) $(addprefix $(O)/bin/,tests/rm_client tests/rm_fuzz tests/door tests/kmod_fuzz tests/kmod_device tests/tsc_khz)
$(call script_test,kernel_test,tests/kernel/run.sh,$(kernel_image) $(kernel_modules) $(kernel_programs))
kernel_test := $(O)/bin/tests/kernel_test

# Other kernels: tests/kernel/long.sh puts vmlinuz and its headers into $(O)/kernel/NAME, makes
# kernel-NAME, and runs the suites.
other_kernels := debug 6.1-rt 6.12-cloud 6.14-generic 6.17-generic 7.0-generic
define other_kernel_rules
$(call ring_rules,$(O)/kernel/$(1),$(O)/kernel/$(1)/build)
$(call ring_modules,$(O)/kernel/$(1)): $(O)/kernel/$(1)/vmlinuz
.PHONY: kernel-$(1)
kernel-$(1): $(call ring_modules,$(O)/kernel/$(1)) $(refused_controls) $(kernel_programs)
endef
$(foreach name,$(other_kernels),$(eval $(call other_kernel_rules,$(name))))

.PHONY: test-kernel
test-kernel: $(kernel_test) $(kernel_modules)  ## the module, the probe and the agent in kernels under QEMU
	@$(kernel_test)

.PHONY: test-kernel-debug test-kernel-real test-kernel-matrix test-kernel-starved test-kernel-cost
test-kernel-cost: $(kernel_test)  ## what the module adds to a call of the driver, in instructions
	@+tests/kernel/long.sh "$(MAKE)" $(O) cost
test-kernel-debug:  ## the same in a kernel with KASAN, lockdep, kmemleak; then fuzzing and loading (1 hour)
	@+tests/kernel/long.sh "$(MAKE)" $(O) debug
test-kernel-real: $(kernel_test)  ## the module on NVIDIA's own open module, without a GPU
	@+tests/kernel/long.sh "$(MAKE)" $(O) real
test-kernel-starved: $(kernel_test)  ## the same while the guests are stopped at random, as on a busy machine
	@+tests/kernel/long.sh "$(MAKE)" $(O) starved
test-kernel-matrix: $(kernel_test)  ## the same in other kernels: 6.1-rt, 6.12, 6.14, 6.17, 7.0
	@+tests/kernel/long.sh "$(MAKE)" $(O) matrix
endif
