# SPDX-License-Identifier: Apache-2.0
$(call gtest,kmod_user_test,$(wildcard tests/intercept/kmod/*_test.cc) $(wildcard intercept/kmod/*.cc) intercept/nvrm/decode.cc,lib/libshmctl.a)
