# SPDX-License-Identifier: Apache-2.0
$(call fuzzer,decode_fuzz,tests/fuzz/decode_fuzz.cc intercept/nvrm/decode.cc)
$(call fuzzer,region_fuzz,tests/fuzz/region_fuzz.cc $(addprefix shmctl/,plane/region.cc plane/snapshot.cc plane/ledger.cc plane/token_bucket.cc base/error.cc))
fuzzed_settings := $(addprefix shmctl/,settings/tenant_settings.cc program/nearest.cc base/error.cc)
fuzzed_tenants := $(addprefix sched/tenants/,config.cc config_tenants.cc tenants.cc tenant_table.cc tenant_processes.cc tenant_records.cc rules.cc) shmctl/plane/roster.cc shmctl/base/log.cc sched/policies/policies.cc sched/spatial/group_division.cc $(call below,sched/policy sched/orders sched/slo,*.cc)
$(call fuzzer,config_fuzz,tests/fuzz/config_fuzz.cc $(fuzzed_tenants) $(fuzzed_settings))
$(call fuzzer,control_fuzz,tests/fuzz/control_fuzz.cc sched/control/handler.cc sched/control/placing.cc intercept/gpu.cc $(wildcard sched/step/*.cc sched/enforce/*.cc sched/jobs/*.cc) $(fuzzed_tenants) $(addprefix sched/tenants/,identity.cc proc_reader.cc takeover.cc tenant_control.cc) $(fuzzed_settings) $(addprefix shmctl/,plane/region.cc plane/snapshot.cc plane/ledger.cc plane/token_bucket.cc plane/status_json.cc base/cgroup.cc base/proc_stat.cc base/version.cc))
$(call fuzzer,kmod_fuzz,tests/fuzz/kmod_fuzz.cc intercept/kmod/translate.cc intercept/nvrm/decode.cc)
