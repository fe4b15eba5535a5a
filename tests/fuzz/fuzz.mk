# SPDX-License-Identifier: Apache-2.0
$(call fuzzer,decode_fuzz,tests/fuzz/decode_fuzz.cc intercept/nvrm/decode.cc)
