# SPDX-License-Identifier: Apache-2.0
# libsched.a: all of gpushared but its main functions, so that tests link the same code.
$(call library,lib/libsched.a,$(filter-out %_main.cc,$(call below,sched,*.cc)))
$(call program,bin/gpushared,sched/daemon/program/gpushared_main.cc,lib/libsched.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS) $(SQLITE_LIBS))
