# SPDX-License-Identifier: Apache-2.0
$(call gtest,sim_test,$(wildcard tests/intercept/sim/*_test.cc),lib/libsim.a lib/libshmctl.a)
