# SPDX-License-Identifier: Apache-2.0
$(call fuzzer,decode_fuzz,tests/fuzz/decode_fuzz.cc intercept/nvrm/decode.cc)
$(call fuzzer,region_fuzz,tests/fuzz/region_fuzz.cc $(addprefix shmctl/,region.cc snapshot.cc ledger.cc token_bucket.cc base/error.cc))
$(call fuzzer,config_fuzz,tests/fuzz/config_fuzz.cc $(addprefix sched/,config.cc tenants.cc rules.cc $(notdir $(wildcard sched/polic*.cc sched/slo_p*.cc))) $(addprefix shmctl/,tenant_settings.cc nearest.cc base/error.cc))
$(call fuzzer,control_fuzz,tests/fuzz/control_fuzz.cc $(addprefix sched/,accounting.cc config.cc control_handler.cc enforcer.cc facts.cc late_attach.cc membership.cc proc_reader.cc publisher.cc recovery.cc registry.cc scheduler.cc tenant_control.cc tenants.cc rules.cc $(notdir $(wildcard sched/polic*.cc sched/slo_p*.cc))) $(addprefix shmctl/,tenant_settings.cc nearest.cc region.cc snapshot.cc ledger.cc token_bucket.cc status_json.cc base/error.cc base/log.cc base/proc_stat.cc base/version.cc))
$(call fuzzer,kmod_fuzz,tests/fuzz/kmod_fuzz.cc intercept/kmod/translate.cc intercept/nvrm/decode.cc)
