# SPDX-License-Identifier: Apache-2.0
$(call fuzzer,decode_fuzz,tests/fuzz/decode_fuzz.cc intercept/nvrm/decode.cc)
$(call fuzzer,region_fuzz,tests/fuzz/region_fuzz.cc $(addprefix shmctl/,region.cc snapshot.cc ledger.cc token_bucket.cc base/error.cc))
$(call fuzzer,config_fuzz,tests/fuzz/config_fuzz.cc $(addprefix sched/,config.cc tenants.cc tenant_settings.cc nearest.cc rules.cc $(notdir $(wildcard sched/polic*.cc))) shmctl/base/error.cc)
