# SPDX-License-Identifier: Apache-2.0
# The probe's user side is part of libintercept.a. Programs that link it add $(BPF_LIBS).
intercept_sources += $(wildcard intercept/bpf/*.cc)
$(call compiled,$(wildcard intercept/bpf/*.cc)): $(addprefix $(O)/gen/intercept/bpf/,driver_probe.skel.h lineage.skel.h)
.PRECIOUS: $(O)/gen/%.bpf.o

# Static, so that a built program needs nothing installed. libelf decompresses with zlib and, where
# it was built so (elfutils 0.189, Ubuntu 24.04), zstd.
# Debian 13's archive of libelf (elfutils 0.192) lacks functions that it calls: there it is shared.
libelf_symbols := $(shell nm $(firstword $(wildcard /usr/lib/*/libelf.a /usr/lib*/libelf.a)) 2>/dev/null | grep -o '[UT] eu_search_tree_init')
BPF_LIBS := -l:libbpf.a $(if $(filter-out T,$(filter U T,$(libelf_symbols))),$(if $(filter T,$(libelf_symbols)),-l:libelf.a,-lelf),-l:libelf.a) -l:libz.a \
  $(if $(wildcard /usr/lib/*/libzstd.a /usr/lib/libzstd.a),-l:libzstd.a)
