# SPDX-License-Identifier: Apache-2.0
# With flags of their own (below, and in tools.mk), and what lies in libsimclient.a as well.
alone += shmctl/base/version.cc shmctl/base/log.cc shmctl/program/command_line.cc shmctl/plane/status_json.cc sched/tenants/config.cc shmctl/base/error.cc shmctl/base/last_threads.cc shmctl/base/proc_stat.cc shmctl/base/unix_socket.cc intercept/sim/wire/client.cc
$(call library,lib/libshmctl.a,$(wildcard $(addsuffix /*.cc,$(addprefix shmctl/,base plane program settings shim usage))))
$(O)/obj/shmctl/base/version.o: CPPFLAGS += -DGS_VERSION=\"$(VERSION)\" -DGS_COMMIT=\"$(COMMIT)\"
# Static, as what the usage history needs must not keep a program from starting elsewhere.
SQLITE_LIBS := -l:libsqlite3.a -l:libz.a -lm
# Another version is another program, though no file of it has changed.
$(O)/obj/shmctl/base/version.o $(O)/fuzz/shmctl/base/version.o: $(call parts,version,$(VERSION))
$(O)/fuzz/shmctl/base/version.o: CPPFLAGS += -DGS_VERSION=\"$(VERSION)\" -DGS_COMMIT=\"$(COMMIT)\"
$(call library,$(formatting),$(formatting_source))
