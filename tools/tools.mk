# SPDX-License-Identifier: Apache-2.0
# gpushare and gpushare-top. libtools.a holds all of both but the mains and what draws, for the
# tests. What `make install` puts elsewhere than bin/: tools_man_pages, tools_completions.
tools_mains := tools/cli_main.cc tools/top_main.cc tools/top_view.cc
$(call library,lib/libtools.a,$(filter-out $(tools_mains),$(wildcard tools/*.cc)))
$(call program,bin/gpushare,tools/cli_main.cc,lib/libtools.a lib/libshmctl.a)
$(call program,bin/gpushare-top,tools/top_main.cc tools/top_view.cc,lib/libtools.a lib/libshmctl.a,-l:libncursesw.a -l:libtinfo.a)
