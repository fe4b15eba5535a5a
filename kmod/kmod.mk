# SPDX-License-Identifier: Apache-2.0
# `make kmod` builds gpushare.ko, and so does `make` where kernel headers are installed. kbuild writes
# beside its sources, so they are copied to $(O)/kmod first and kmod/ stays clean.
#   KDIR=DIR  the headers; default: those of the running kernel, otherwise the newest installed
kmod_headers := $(wildcard /lib/modules/$(shell uname -r)/build) \
  $(addsuffix /build,$(shell ls -dvr /lib/modules/* 2>/dev/null))
KDIR ?= $(patsubst %/Makefile,%,$(firstword $(wildcard $(addsuffix /Makefile,$(kmod_headers)))))
# Lines that say nothing: the compiler differs in its last digits, and there is no vmlinux for BTF.
kmod_noise := -e '^warning: the compiler differs' -e '^  The kernel was built by' -e '^  You are using' \
  -e '^Skipping BTF generation'
kmod_sources := kmod/Kbuild $(wildcard kmod/*.[ch] kmod/*/*.[ch])
# Also what DKMS makes instead of the module, where it is not for the kernel.
dkms_sources := $(kmod_sources) $(wildcard kmod/install/unfit/*)
kmod_copies := $(kmod_sources:kmod/%=$(O)/kmod/%)

$(O)/kmod/%: kmod/%
	@mkdir -p $(@D)
	$(Q)cp $< $@

# Another KDIR is another module.
$(O)/kmod/gpushare.ko: $(kmod_copies) $(call parts,kmod,$(KDIR) $(kmod_flags))
	$(call say,KMOD,$(notdir $(patsubst %/build,%,$(KDIR))))
	$(Q)env -u MAKEFLAGS -u MFLAGS make -s -j$(shell nproc) -C $(KDIR) M=$(abspath $(@D)) W=1 \
	  $(kmod_flags) modules 2>&1 | { grep -v $(kmod_noise) || :; }
	@test -f $@

.PHONY: kmod
ifneq ($(KDIR),)
kmod: $(O)/kmod/gpushare.ko  ## the kernel module (KDIR=headers)
else
kmod:
	@echo 'kmod: no kernel headers are installed; gpushare.ko is not built (Debian: linux-headers-amd64)'
endif
all: kmod

# Everything goes below DESTDIR. With one, DKMS is not run: the package's own scripts do that. The
# files that load the module at boot come last, when DKMS has built it.
DKMS_KERNEL ?= $(shell uname -r)
MODULES_LOAD_DIR ?= /etc/modules-load.d
MODPROBE_DIR ?= /etc/modprobe.d
UDEV_DIR ?= /usr/lib/udev/rules.d
MODULE_SCRIPT := /usr/libexec/gpushare-module
dkms_source = $(DESTDIR)/usr/src/gpushare-$(VERSION)
.PHONY: dkms-install dkms-remove
dkms-install:  ## the kernel module by DKMS, loaded at boot (root; DKMS_KERNEL=the running one)
	@[ -n "$(DESTDIR)" ] || command -v dkms >/dev/null || { echo 'dkms-install: dkms is missing (package dkms)' >&2; exit 1; }
	install -d $(dkms_source) $(DESTDIR)$(MODULES_LOAD_DIR) $(DESTDIR)$(MODPROBE_DIR) $(DESTDIR)$(UDEV_DIR)
	for file in $(dkms_sources:kmod/%=%); do install -D -m 644 kmod/$$file $(dkms_source)/$$file || exit 1; done
	install -m 644 LICENSE-GPL-2.0 $(dkms_source)
	sed 's/@VERSION@/$(VERSION)/' kmod/install/dkms.conf.in > $(dkms_source)/dkms.conf
	[ -n "$(DESTDIR)" ] || dkms status gpushare/$(VERSION) | grep -q . || dkms add gpushare/$(VERSION)
	[ -n "$(DESTDIR)" ] || env -u MAKEFLAGS -u MFLAGS dkms install --force -k $(DKMS_KERNEL) gpushare/$(VERSION)
	install -D -m 755 kmod/install/module.sh $(DESTDIR)$(MODULE_SCRIPT)
	install -m 644 kmod/install/60-gpushare.rules $(DESTDIR)$(UDEV_DIR)
	install -m 644 kmod/install/modules-load.conf $(DESTDIR)$(MODULES_LOAD_DIR)/gpushare.conf
	install -m 644 kmod/install/modprobe.conf $(DESTDIR)$(MODPROBE_DIR)/gpushare.conf

dkms-remove:  ## what dkms-install installed (root)
	[ -n "$(DESTDIR)" ] || ! command -v dkms >/dev/null || dkms remove gpushare/$(VERSION) --all || :
	[ -n "$(DESTDIR)" ] || [ ! -e /sys/kernel/gpushare ] || kmod/install/module.sh unload || :
	rm -rf $(dkms_source)
	rm -f $(DESTDIR)$(MODULE_SCRIPT) $(DESTDIR)$(UDEV_DIR)/60-gpushare.rules $(DESTDIR)$(MODULES_LOAD_DIR)/gpushare.conf $(DESTDIR)$(MODPROBE_DIR)/gpushare.conf
