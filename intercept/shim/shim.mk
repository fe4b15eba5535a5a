# SPDX-License-Identifier: Apache-2.0
# libgpushare.so, which is preloaded into programs: its own flags, because it must need nothing but
# libc and bring nothing with it: no libstdc++, no exceptions, no sanitizer's runtime.
shim_library := lib/libgpushare.so
shim_sources := $(call below,intercept/shim,*.cc)
shim_objects := $(patsubst %.cc,$(unsanitized)/shim/%.o,$(shim_sources)) $(unsanitized)/shim/intercept/shim/calls/entry.o
shim_flags := -std=c++23 -O2 -g1 -fPIC -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-stack-protector -ftls-model=initial-exec -fvisibility=hidden -fcf-protection $(WARN)
extra_targets += $(O)/$(shim_library)

$(unsanitized)/shim/%.o: %.cc
	$(call say,SHIM,$<)
	@mkdir -p $(@D)
	$(Q)$(GXX) -I. $(shim_flags) -MMD -MP -c -o $@ $<
$(unsanitized)/shim/%.o: %.S
	$(call say,SHIM,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) -I. -MMD -MP -c -o $@ $<

# Exported: the names of hooks.def, dlsym, dlvsym and dlopen, and what gpushare.h declares.
$(unsanitized)/gen/intercept/shim/exports.map: intercept/shim/driver/hooks.def intercept/api/gpushare.h intercept/shim/shim.mk
	@mkdir -p $(@D)
	$(Q){ echo '{ global: dlsym; dlvsym; dlopen;'; \
	  printf '#define GS_HOOK(kind, base, symbol, since, parameters) symbol;\n#define GS_HOOK_VARIANT GS_HOOK\n#include "$<"\n' | $(CC) -I. -E -P -; \
	  sed -n 's/^GPUSHARE_FUNCTION(\([a-z_]*\),.*/\1;/p' intercept/api/gpushare.h; \
	  echo 'local: *; };'; } > $@

# The C compiler links it, as that adds no library of C++.
$(unsanitized)/$(shim_library): $(shim_objects) $(unsanitized)/gen/intercept/shim/exports.map
	$(call say,LINK,$(shim_library))
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -static-libgcc -Wl,-soname,libgpushare.so -Wl,--version-script=$(unsanitized)/gen/intercept/shim/exports.map -Wl,--no-undefined -Wl,-z,relro,-z,now -o $@ $(shim_objects)
$(call never_sanitized,$(shim_library))

shim_page := $(O)/gen/intercept/shim/hooks.md
extra_targets += $(shim_page)
$(shim_page): intercept/shim/driver/hooks.def intercept/shim/driver/hooks_doc.sh
	@mkdir -p $(@D)
	$(Q)intercept/shim/driver/hooks_doc.sh $< > $@
-include $(shim_objects:.o=.d)
