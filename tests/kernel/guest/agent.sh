# SPDX-License-Identifier: Apache-2.0
# gpushared as it is, with its probe, and gpushare, on a real kernel and the stand-in driver.
. /test/lib.sh
load_driver

test_FindsTheDriversGpuAndAllItsControls() {
  agent_up
  equal "" "$(agent_complaints)" "the agent's complaints"
  equal 580.142 "$(agent_value driver_version)" driver_version
  equal true "$(agent_value can_freeze)" can_freeze
  equal true "$(agent_value can_set_slice)" can_set_slice
  equal true "$(agent_value has_switch_log)" has_switch_log
  equal "NVIDIA stand-in" "$(agent_value name)" name
  equal 132 "$(agent_value sm_count)" sm_count
  equal 1073741824 "$(agent_value memory_bytes)" memory_bytes
}

test_TheProbeSeesAProcessAndItsMemory() {
  agent_up
  busy_client alloc=64 heap=32
  wait_for 5 has_state "$started" running
  equal false "$(process_value "$started" is_late_attach)" is_late_attach
  equal rm_client "$(process_value "$started" command)" command
  equal $((96 << 20)) "$(process_value "$started" memory_bytes)" memory_bytes
}

test_AProcessThatIsKilledIsForgotten() {
  agent_up
  busy_client
  wait_for 5 is_known "$started"
  kill -9 "$started"
  wait_for 5 is_unknown "$started"
}

test_AProcessThatWasThereBeforeIsFound() {
  agent_down
  busy_client
  agent_up
  wait_for 5 has_state "$started" running
  equal true "$(process_value "$started" is_late_attach)" is_late_attach
}

has_share() { between "$2" "$3" "$(process_value "$1" share_pct)" share; }
# The policy corrects slices by what it measures, so their ratio is only near 3.
has_slices_1_to_3() {
  echo "$(slice_of "$1") $(slice_of "$2")" | awk '{ exit !($2 > 2.4 * $1 && $2 < 3.6 * $1) }'
}
test_WeightsBecomeSlicesAndShares() {
  local light heavy
  agent_up
  gpushare set --create light weight=100
  gpushare set --create heavy weight=300
  busy_client && light=$started
  busy_client && heavy=$started
  wait_for 5 gpushare attach "$light" light
  wait_for 5 gpushare attach "$heavy" heavy
  wait_for 5 has_slices_1_to_3 "$light" "$heavy"
  wait_for 10 holds has_share "$light" 22 28
  wait_for 10 holds has_share "$heavy" 70 78
  has_true_share "$light" 21 29 1
  gpushare remove light
  gpushare remove heavy
}

has_a_fair_slice() { [ "$(slice_of "$1")" -lt 20000 ]; }
test_OneThatTakesALongerSliceIsPutBack() {
  local honest cheat
  agent_up
  busy_client && honest=$started
  rm -f /tmp/cheat
  client open busy until=/tmp/cheat slice=500000 echo=cheated wait && cheat=$started
  wait_for 10 has_another_slice "$cheat" ""
  wait_for 10 is_known "$cheat"
  : >/tmp/cheat
  wait_for 10 grep -q cheated "/tmp/client.$cheat"
  equal 0x0 "$(answer_of "$cheat" slice=500000)" "the driver's answer to the cheat"
  wait_for 5 has_a_fair_slice "$cheat"
  has_true_share "$honest" 40 60
}

test_FreezeStopsAProcessUntilThaw() {
  local before
  agent_up
  busy_client
  wait_for 5 is_known "$started"
  gpushare freeze "$started"
  wait_for 5 is_frozen "$started"
  equal 1 "$(freezes_of "$started")" "freezes of each channel"
  before=$(ran_us_of "$started")
  sleep 0.5
  equal "$before" "$(ran_us_of "$started")" "GPU time while frozen"
  has_state "$started" frozen-user || fail "the state is $(process_value "$started" state)"
  gpushare thaw "$started"
  wait_for 5 is_thawed "$started"
  has_true_share "$started" 90 100
}

test_ACapHoldsAndTheRestStaysFree() {
  agent_up
  gpushare set --create capped max=30%
  busy_client
  wait_for 5 gpushare attach "$started" capped
  # On a busy machine the agent thaws late, and freezes late what it then charges: without a cap it would be 100.
  has_true_share "$started" 10 40 4
  gpushare remove capped
  wait_for 5 is_thawed "$started"
  has_true_share "$started" 90 100 1
}

test_WorkThatOutlivesItsProgramIsHeld() {
  agent_up
  gpushare set --create outlived max=30%
  expect_the_outlived_is_held outlived
  gpushare remove outlived
}

test_IdlePriorityYieldsToOthers() {
  local idle
  agent_up
  gpushare set --create later priority=idle
  busy_client && idle=$started
  wait_for 5 gpushare attach "$idle" later
  busy_client
  wait_for 5 has_slice "$idle" 1
  has_true_share "$idle" 0 5 1
  gpushare remove later
}

# The agent, a client in a heavy tenant ($other), and a frozen one ($started).
heavy_and_frozen() {
  agent_up
  gpushare set --create heavy weight=700
  busy_client && other=$started
  busy_client
  wait_for 5 gpushare attach "$other" heavy
  wait_for 5 is_known "$started"
  gpushare freeze "$started"
  wait_for 5 is_frozen "$started"
}
all_is_as_it_was() {
  equal 0 "$(frozen_total)" "frozen channels"
  equal "2048 2048" "$(slice_of "$other") $(slice_of "$started")" slices
}

test_AStoppedAgentLeavesEverythingAsItWas() {
  local other
  heavy_and_frozen
  agent_down
  all_is_as_it_was
}

test_AKilledAgentsSupervisorThawsAndStartsAnother() {
  agent_up
  busy_client
  wait_for 5 is_known "$started"
  gpushare freeze "$started"
  kill_agent_and_expect_a_thaw "$started"
  wait_for 10 has_state "$started" running
  equal 1 "$(agent_value restarts)" restarts
  agent_down
}

test_RecoverUndoesWhatBothHaveLeft() {
  local other agent
  heavy_and_frozen
  wait_for 5 has_another_slice "$other" 2048
  agent=$(agent_pid)
  kill -STOP "$agent" # it would undo everything when it is told that its supervisor has died
  kill -9 "$(cat /tmp/agent.pid)" "$agent"
  rm /tmp/agent.pid
  sleep 0.5
  is_frozen "$started" || fail "it was thawed already: this test shows nothing"
  gpushared --recover
  all_is_as_it_was
}

test_WithoutADriverItWaitsForOne() {
  agent_down
  unload_driver
  agent_up
  between 1 200 "$(agent_value observe_only_reason | wc -c)" "length of the reason"
  load_driver
  busy_client
  wait_for 10 has_state "$started" running
  agent_down
}

run_tests Agent
