# SPDX-License-Identifier: Apache-2.0
# All of the tools but their main functions and what paints is in libraries, so that tests link the
# same code: what every tool needs, what the demo adds to it, and the rest.
tool_sources = $(filter-out %/main.cc tools/top/terminal.cc,$(call below,$(addprefix tools/,$(1)),*.cc))
$(call library,lib/libtools.a,$(call tool_sources,agent base))
$(call library,lib/libdemo.a,$(call tool_sources,demo))
$(call library,lib/libexporter.a,$(call tool_sources,exporter))
$(call program,bin/gpushare-exporter,tools/exporter/main.cc,lib/libexporter.a lib/libtools.a lib/libshmctl.a)
$(call library,lib/libviews.a,$(call tool_sources,cli containers doctor profile report top trace view))
$(call program,bin/gpushare,tools/cli/main.cc,lib/libviews.a lib/libdemo.a lib/libtools.a lib/libsched.a lib/libintercept.a lib/libshmctl.a,$(SQLITE_LIBS))
$(call program,bin/gpushare-top,tools/top/main.cc tools/top/terminal.cc,lib/libviews.a lib/libtools.a lib/libshmctl.a,-l:libncursesw.a -l:libtinfo.a)
$(call program,bin/gpushare-demo,tools/demo/main.cc,lib/libdemo.a lib/libtools.a lib/libshmctl.a)

# What `make demo` runs, and so all that it builds.
demo_needs = $(addprefix $(O)/,$(addprefix bin/,gpushare gpushare-demo gpushared gpushare-sim) $(addprefix bin/workloads/,spin endless periodic) $(libcuda_standin))

# Nothing here runs more than some times a second, and JSON and option parsers are large: a fifth of
# the time that compiling them takes goes into what -O2 adds.
$(O)/obj/tools/%.o $(addprefix $(O)/obj/,shmctl/base/log.o shmctl/program/command_line.o shmctl/plane/status_json.o sched/control/%.o sched/tenants/config.o): \
  OPTIMIZE := $(if $(filter command%,$(origin OPTIMIZE))$(SAN),$(OPTIMIZE),-O1 -g1 $(HARDENED))
