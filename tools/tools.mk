# SPDX-License-Identifier: Apache-2.0
# libtools.a: all of the tools but their main functions and what paints, so that tests link the
# same code.
$(call library,lib/libtools.a,$(filter-out %/main.cc tools/top/terminal.cc,$(call below,tools,*.cc)))
$(call program,bin/gpushare,tools/cli/main.cc,lib/libtools.a lib/libsched.a lib/libintercept.a lib/libshmctl.a)
$(call program,bin/gpushare-top,tools/top/main.cc tools/top/terminal.cc,lib/libtools.a lib/libshmctl.a,-l:libncursesw.a -l:libtinfo.a)
$(call program,bin/gpushare-demo,tools/demo/main.cc,lib/libtools.a lib/libshmctl.a)
