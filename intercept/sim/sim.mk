# SPDX-License-Identifier: Apache-2.0
# libsimclient.a: the connection alone, for the stand-in libcuda.so.1.
sim_client_sources := intercept/sim/client.cc
$(call library,lib/libsimclient.a,$(sim_client_sources) shmctl/base/error.cc)
intercept_sources += $(filter-out intercept/sim/server_main.cc,$(wildcard intercept/sim/*.cc))
