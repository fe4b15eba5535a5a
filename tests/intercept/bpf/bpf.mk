# SPDX-License-Identifier: Apache-2.0
$(call gtest,bpf_test,$(wildcard tests/intercept/bpf/*.cc),lib/libintercept.a lib/libshmctl.a,$(BPF_LIBS) -lfuse3)
$(call gtest,nvrm_decode_test,tests/intercept/nvrm/decode_test.cc intercept/nvrm/decode.cc)
