# SPDX-License-Identifier: Apache-2.0
# The simulated GPU: what the agent links (in libintercept.a), its server, and libsimclient.a, the
# connection alone, for the stand-in libcuda.so.1.
sim_server_sources := $(wildcard intercept/sim/server*.cc) intercept/sim/connection.cc intercept/sim/peer.cc
sim_server_library_sources := $(filter-out %_main.cc,$(sim_server_sources))
intercept_sources += $(filter-out $(sim_server_sources),$(wildcard intercept/sim/*.cc))
$(call library,lib/libsimclient.a,intercept/sim/client.cc shmctl/base/error.cc)
$(call library,lib/libsimserver.a,$(sim_server_library_sources))
$(call program,bin/gpushare-sim,intercept/sim/server_main.cc,lib/libsimserver.a lib/libintercept.a lib/libshmctl.a)
