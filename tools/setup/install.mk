# SPDX-License-Identifier: Apache-2.0
# `make install`, `make dist`, `make deb`: one list of what goes where.
user_programs := gpushare gpushare-top gpushare-sim gpushare-exporter
installed = $(addprefix $(O)/bin/,$(user_programs) gpushared) $(O)/lib/sim/libcuda.so.1 $(O)/lib/libgpushare.so $(spank_built) $(completions)
plugin_man := tools/man/gpushare-device-plugin.1
man1 := $(filter-out $(plugin_man),$(wildcard tools/man/*.1))
man5 := $(wildcard docs/*.5)
man8 := $(wildcard sched/man/*.8)
man_pages := $(man1) $(man5) $(man8)
monitoring := tools/exporter/grafana-dashboard.json tools/exporter/alerts.yml
services := sched/gpushared.service tools/exporter/gpushare-exporter.service
# The pages, and whatever README.md links to, and other pages that these link to: they keep their places below
# one folder, so that the links work.
linked_pages := $(sort $(shell grep -ohE '\].(\.\./)?[a-z][^:() ]*[.]md' docs/*.md CONTRIBUTING.md | sed 's/^..//; s/^\.\.\///'))
pages := $(sort README.md $(wildcard docs/*.md docs/*.svg $(linked_pages) $(shell tr '()\#' '\n\n\n' <README.md | grep -xE '[A-Za-z][^: ]*[.][a-z0-9]+')))
install_pages = tools/setup/install_pages.sh $(1) $(pages)
# The packages of what is linked into the programs. The notices of its authors go with them, as most of their licences
# ask; tools/setup/debian/copyright has the list with its licences.
linked_packages := libasio-dev libboost-dev libbpf-dev libcli11-dev libelf-dev libfmt-dev libncurses-dev libspdlog-dev libsqlite3-dev libstdc++-[1-9]*-dev \
  libtomlplusplus-dev libzstd-dev nlohmann-json3-dev zlib1g-dev
notices := $(foreach package,$(linked_packages),$(lastword $(sort $(wildcard /usr/share/doc/$(package)/copyright))))
# $(call install_notices,FOLDER): each is named as its package.
install_notices = $(foreach notice,$(notices),install -D -m 644 $(notice) $(1)/$(notdir $(patsubst %/copyright,%,$(notice))) &&) true
completed_programs := $(user_programs) gpushared
completions = $(foreach program,$(completed_programs),$(addprefix $(O)/completions/$(program).,bash zsh fish))

define completion_rule
$(O)/completions/$(1).%: $(O)/bin/$(1)
	@mkdir -p $$(@D)
	$$(Q)$$< --print-completion $$* > $$@
endef
$(foreach program,$(completed_programs),$(eval $(call completion_rule,$(program))))
# So that `sudo make install` makes nothing that is root's in the folder of who has built.
all: $(completions)

at = $(DESTDIR)$(PREFIX)
UNIT_DIR ?= $(PREFIX)/lib/systemd/system
ZSH_DIR ?= $(PREFIX)/share/zsh/site-functions
# The example's own tenants are commented out: on this machine they belong to nobody yet.
installed_config := sed '/^\[tenant\.inference\]/,$$s/^./\# &/'
install: $(installed)  ## into PREFIX (/usr/local), below DESTDIR
	install -d $(at)/bin $(at)/sbin $(at)/include $(at)/lib/gpushare/sim $(at)/lib/gpushare/python $(at)/share/man/man1 $(at)/share/man/man5 $(at)/share/man/man8 \
	  $(at)/share/bash-completion/completions $(DESTDIR)$(ZSH_DIR) $(at)/share/fish/vendor_completions.d \
	  $(at)/share/doc/gpushare $(DESTDIR)$(UNIT_DIR) $(DESTDIR)/etc/gpushare
	install -m 755 $(addprefix $(O)/bin/,$(user_programs)) $(at)/bin
	install -m 755 $(O)/bin/gpushared $(at)/sbin
	install -m 755 $(O)/lib/sim/libcuda.so.1 $(at)/lib/gpushare/sim
	install -m 755 $(O)/lib/libgpushare.so $(at)/lib/gpushare
	$(if $(spank_built),install -D -m 644 -t $(at)/lib/gpushare/slurm $(spank_built))
	install -m 644 intercept/api/gpushare.h $(at)/include
	install -m 644 intercept/api/gpushare.py $(at)/lib/gpushare/python
	install -m 644 $(man1) $(at)/share/man/man1
	install -m 644 $(man5) $(at)/share/man/man5
	install -m 644 $(man8) $(at)/share/man/man8
	for program in $(completed_programs); do \
	  install -m 644 $(O)/completions/$$program.bash $(at)/share/bash-completion/completions/$$program && \
	  install -m 644 $(O)/completions/$$program.zsh $(DESTDIR)$(ZSH_DIR)/_$$program && \
	  install -m 644 $(O)/completions/$$program.fish $(at)/share/fish/vendor_completions.d/$$program.fish || exit 1; done
	install -m 644 LICENSE LICENSE-GPL-2.0 $(at)/share/doc/gpushare
	$(call install_pages,$(at)/share/doc/gpushare)
	$(call install_notices,$(at)/share/doc/gpushare/libraries)
	install -d $(at)/share/gpushare
	install -m 644 $(monitoring) $(at)/share/gpushare
	for unit in $(services); do sed 's|/usr/local/|$(PREFIX)/|g' $$unit > $(DESTDIR)$(UNIT_DIR)/$$(basename $$unit) || exit 1; done
	[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || getent group gpushare >/dev/null || groupadd --system gpushare
	[ -e $(DESTDIR)/etc/gpushare/gpushare.toml ] || { $(installed_config) sched/gpushare.toml.example; } > $(DESTDIR)/etc/gpushare/gpushare.toml

.PHONY: uninstall
uninstall: $(installed)  ## what install has put there (root; PURGE=1: also the configuration and the agent's state)
	@stage=$$(mktemp -d) && trap 'rm -rf "$$stage"' EXIT && \
	  $(MAKE) --no-print-directory -s install DESTDIR="$$stage" >/dev/null && tools/setup/uninstall.sh "$$stage" "$(DESTDIR)" $(PURGE)

# Apart from the rest, as it wants gRPC's libraries.
.PHONY: install-kubernetes
install-kubernetes: $(or $(device_plugin),no-grpc)  ## the device plugin for Kubernetes, into PREFIX
	install -D -m 755 -t $(at)/bin $(device_plugin)
	install -D -m 644 -t $(at)/share/man/man1 $(plugin_man)
	install -D -m 644 -t $(at)/share/gpushare/kubernetes $(wildcard tools/kubernetes/deploy/*)
no-grpc:
	@echo "gRPC is missing (packages libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libcurl4-openssl-dev)" >&2; exit 1

# A folder and a tarball that run on any x86-64 with glibc 2.34, a kernel with BTF and the driver. What the scripts of
# bench/gpu and tests/gpu start is in it too: with the source tree beside it, they take it for BUILD.
dist_name := gpushare-$(VERSION)-x86_64
dist_folder := $(O)/dist/$(dist_name)
dist_programs = $(filter $(addprefix $(O)/,bin/bench/% bin/gpu-tests/% bin/workloads/% bin/tests/shim_drive lib/tests/%),$(programs) $(extra_targets))
dist: all $(O)/bin/tests/kill_storm_test $(completions)  ## a self-contained folder and tarball in $(O)/dist
	@rm -rf $(dist_folder)
	@mkdir -p $(dist_folder)/share
	@for folder in bin lib/sim; do mkdir -p $(dist_folder)/$$folder; \
	  find $(O)/$$folder -maxdepth 1 -type f ! -name gpushare-device-plugin -exec install -m 755 -s {} $(dist_folder)/$$folder \; ; done
	@install -m 755 -s $(O)/lib/libgpushare.so $(dist_folder)/lib
	@$(if $(spank_built),install -D -m 644 -s -t $(dist_folder)/lib/slurm $(spank_built))
	@for file in $(patsubst $(O)/%,%,$(dist_programs)); do \
	  install -D -m 755 -s $(O)/$$file $(dist_folder)/$$file || exit 1; done
	@mkdir -p $(dist_folder)/share/completions $(dist_folder)/share/man
	@cp $(completions) $(dist_folder)/share/completions
	@cp $(man_pages) $(dist_folder)/share/man
	@install -D -m 755 -s $(O)/bin/tests/kill_storm_test $(dist_folder)/bin/tests/kill_storm_test
	@install -D -m 755 tests/sched/kills/storm.sh $(dist_folder)/share/kill-storm.sh
	@cp $(O)/gen/intercept/bpf/driver_probe.bpf.o $(services) $(monitoring) sched/gpushare.toml.example \
	  intercept/api/gpushare.h intercept/api/gpushare.py tools/setup/install-dist.sh tests/gpu/run.sh $(dist_folder)/share
	@cp LICENSE LICENSE-GPL-2.0 $(dist_folder)
	@$(call install_pages,$(dist_folder))
	@$(call install_notices,$(dist_folder)/libraries)
	@tools/setup/check-dist.sh $(dist_folder)
	@tar -C $(O)/dist -czf $(O)/dist/$(dist_name).tar.gz $(dist_name)
	@du -sh $(dist_folder) $(O)/dist/$(dist_name).tar.gz

# Debian packages of the same, gpushare and gpushare-dkms. dpkg-buildpackage writes beside the folder
# it runs in, and that folder's debian/ fills up, so it is a copy. It compiles nothing, so it need not
# look for a compiler (-d); what it needs is looked for before anything is built.
deb_tree := $(O)/deb/tree
.PHONY: deb deb-tools
deb-tools:
	@for tool in dh dpkg-buildpackage; do command -v $$tool >/dev/null || \
	  { echo "deb: $$tool is missing (packages debhelper and dpkg-dev)" >&2; exit 1; }; done
$(O)/deb/packed: | deb-tools
deb: $(O)/deb/packed  ## Debian packages in $(O)/deb
$(O)/deb/packed: $(wildcard tools/setup/debian/* tools/setup/debian/source/*) $(wildcard kmod/install/*) \
  tools/setup/install.mk tools/setup/install_pages.sh $(dkms_sources) $(call parts,version,$(VERSION)) $(installed) $(man_pages) $(pages) LICENSE LICENSE-GPL-2.0 \
  kmod/README.md kmod/ABI/sysfs-kernel-gpushare $(services) $(monitoring) sched/gpushare.toml.example
	$(call say,DEB,$(O)/deb)
	@rm -rf $(O)/deb && mkdir -p $(deb_tree) && cp -r tools/setup/debian $(deb_tree)
	$(Q)cd $(deb_tree) && env -u MAKEFLAGS -u MAKELEVEL GPUSHARE_SOURCE=$(CURDIR) \
	  GPUSHARE_MAKE='$(MAKE) -C $(CURDIR) O=$(abspath $(O))' \
	  dpkg-buildpackage -d -us -uc -b >../build.log 2>&1 || { tail -n 40 ../build.log >&2; exit 1; }
	@ls $(O)/deb/*.deb && touch $@

# RPM packages of the same. rpmbuild does not look for what a Debian machine does not list (--nodeps).
.PHONY: rpm
rpm: $(installed)  ## RPM packages in $(O)/rpm (needs rpmbuild)
	@command -v rpmbuild >/dev/null || { echo 'rpm: rpmbuild is missing (package rpm, or rpm-build)' >&2; exit 1; }
	$(call say,RPM,$(O)/rpm)
	$(Q)rm -rf $(O)/rpm && mkdir -p $(O)/rpm && env -u MAKEFLAGS -u MAKELEVEL rpmbuild -bb --nodeps --quiet \
	  --define '_topdir $(abspath $(O))/rpm' --define 'gpushare_version $(VERSION)' \
	  --define 'gpushare_make $(MAKE) -C $(CURDIR) O=$(abspath $(O))' tools/setup/rpm/gpushare.spec \
	  >$(O)/rpm/log 2>&1 || { tail -n 40 $(O)/rpm/log >&2; exit 1; }
	@ls $(O)/rpm/RPMS/*/*.rpm
