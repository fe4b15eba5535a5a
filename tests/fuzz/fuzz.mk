# SPDX-License-Identifier: Apache-2.0
$(call fuzzer,decode_fuzz,tests/fuzz/decode_fuzz.cc,lib/libintercept.a lib/libshmctl.a)
$(call fuzzer,kmod_fuzz,tests/fuzz/kmod_fuzz.cc,lib/libintercept.a lib/libshmctl.a)
$(call fuzzer,region_fuzz,tests/fuzz/region_fuzz.cc,lib/libshmctl.a)
$(call fuzzer,config_fuzz,tests/fuzz/config_fuzz.cc,lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
$(call fuzzer,control_fuzz,tests/fuzz/control_fuzz.cc,lib/libsched.a lib/libsim.a lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS))
