# SPDX-License-Identifier: Apache-2.0
# The probe's user side is part of libintercept.a. Programs that link it add $(BPF_LIBS).
intercept_sources += $(wildcard intercept/bpf/*.cc)
$(O)/obj/intercept/bpf/probe.o: $(O)/gen/intercept/bpf/driver_probe.skel.h
$(O)/obj/intercept/bpf/lineage.o: $(O)/gen/intercept/bpf/lineage.skel.h
.PRECIOUS: $(O)/gen/%.bpf.o

# Static, so that a built program needs nothing installed. libelf decompresses with zlib and, where
# it was built so (elfutils 0.189, Ubuntu 24.04), zstd.
BPF_LIBS := -l:libbpf.a -l:libelf.a -l:libz.a \
  $(if $(wildcard /usr/lib/*/libzstd.a /usr/lib/libzstd.a),-l:libzstd.a)
