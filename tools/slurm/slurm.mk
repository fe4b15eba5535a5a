# SPDX-License-Identifier: Apache-2.0
# lib/slurm/gpushare_spank.so, where Slurm's header is (package libslurm-dev). Slurm takes a plugin that was
# built for its own release only: SLURM_INCLUDE=DIR is where another release's slurm/spank.h is.
SLURM_INCLUDE ?= /usr/include
spank_plugin := $(O)/lib/slurm/gpushare_spank.so
spank_sources := $(wildcard tools/slurm/*.c)
spank_built := $(if $(wildcard $(SLURM_INCLUDE)/slurm/spank.h),$(if $(SAN),,$(spank_plugin)))
extra_targets += $(spank_built)

# It is loaded by Slurm's programs, so it shows them what they look for and nothing else.
$(spank_plugin): $(spank_sources) $(wildcard tools/slurm/*.h) tools/slurm/slurm.mk
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -I. -I$(SLURM_INCLUDE) $(CFLAGS) -D_GNU_SOURCE -fvisibility=hidden -shared -Wl,-z,relro,-z,now -o $@ $(spank_sources)

.PHONY: slurm-plugin
slurm-plugin: $(spank_plugin)  ## Slurm's plugin alone (SLURM_INCLUDE=DIR: for the Slurm whose headers are there)

# All but what Slurm calls, for tests.
spank_objects := $(patsubst %.c,$(O)/obj/%.o,$(filter-out %/gpushare_spank.c,$(spank_sources)))
$(spank_objects): $(O)/obj/%.o: %.c $(wildcard tools/slurm/*.h)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -I. $(CFLAGS) $(if $(SAN),-fsanitize=$(SAN)) -D_GNU_SOURCE -c -o $@ $<
