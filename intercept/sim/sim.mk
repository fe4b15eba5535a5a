# SPDX-License-Identifier: Apache-2.0
# The simulated GPU: all of it in libsim.a, for its server and tests; what the agent needs of it in
# libintercept.a; and the connection alone in libsimclient.a, for the stand-in libcuda.so.1.
sim_server_sources := $(wildcard intercept/sim/server/*.cc) intercept/sim/wire/connection.cc
sim_sources := $(filter-out intercept/sim/server/server_main.cc,$(foreach folder,gpu model server wire,$(wildcard intercept/sim/$(folder)/*.cc)))
intercept_sources += $(filter-out $(sim_server_sources),$(sim_sources))
$(call library,lib/libsim.a,$(sim_sources) $(wildcard intercept/*.cc))
$(call library,lib/libsimclient.a,intercept/sim/wire/client.cc shmctl/base/error.cc shmctl/base/last_threads.cc shmctl/base/proc_stat.cc shmctl/base/unix_socket.cc)
$(call program,bin/gpushare-sim,intercept/sim/server/server_main.cc,lib/libsim.a lib/libshmctl.a)
