# SPDX-License-Identifier: Apache-2.0
# gpushare.ko on NVIDIA's own open kernel module, without a GPU: the real functions at their real entry,
# and the real answers to calls that need no GPU. nvidia-stays.ko differs from nvidia.ko only in that it
# stays loaded.
. /test/lib.sh

load_driver() {
  [ -e /dev/nvidiactl ] || mknod -m 666 /dev/nvidiactl c 195 255
  [ -e /proc/driver/nvidia ] || insmod /test/nvidia-stays.ko
}
# The driver can be unloaded once the last open file has been closed.
is_driver_unloaded() { rmmod nvidia 2>/dev/null || [ ! -e /proc/driver/nvidia ]; }
is_unloaded() { rmmod gpushare 2>/dev/null || [ ! -e $tree ]; }
was_seen() { dmesg | grep -c "gpushare: hooked"; }
refused() { cat $tree/tenants/default/controls_refused; }

test_HooksADriverThatFindsNoGpuAndGivesUp() {
  load_module
  ! insmod /test/nvidia.ko 2>/tmp/insmod || fail "it loaded"
  grep -q 'No such device' /tmp/insmod || fail "$(cat /tmp/insmod)"
  between 1 2 "$(was_seen)" "times that it was hooked on its way" # busybox' insmod tries twice
  equal "waiting for driver" "$(driver_state)" state
  unload_module
}

test_HooksItByTheNameOfItsRelease() {
  load_module
  load_driver
  wait_for 10 has_driver_state hooked
  cat $tree/driver
  ! dmesg | grep 'cannot be pinned' || fail "its rm_ioctl was not found"
}

test_ARootClientIsMadeThroughTheFilter() {
  load_driver
  load_module
  equal "root 0x0 clients=1000 0x0 end 0x0" "$(echo $(rm_client root clients=1000 end))" answers
}

test_SchedulingControlsAreRefused() {
  local control before without words="" count=0
  load_driver
  load_module
  before=$(refused)
  for control in $(cat /test/refused-controls); do
    words="$words control=$control"
    count=$((count + 1))
  done
  # shellcheck disable=SC2086
  equal "$count" "$(rm_client root $words | grep -c ' 0x1b$')" "controls refused"
  equal $((before + count)) "$(refused)" "controls counted"
  unload_module # without it the driver says that it knows no such object
  # shellcheck disable=SC2086
  without=$(rm_client root $words | grep -c ' 0x1b$' || true)
  equal 0 "$without" "controls refused without the module"
}

# Every call is seen: two programs at once make 2,000 that are refused, and 2,000 are counted.
test_NoCallPassesUnseen() {
  local before words="" i=0
  load_driver
  load_module
  before=$(refused)
  while [ $i -lt 50 ]; do
    words="$words control=$(head -n 1 /test/refused-controls)"
    i=$((i + 1))
  done
  hammer() { for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do rm_client root $words >/dev/null; done; }
  hammer &
  hammer
  wait
  equal $((before + 2000)) "$(refused)" "controls counted"
}

# The driver is asked by the two functions that nvidia_uvm would call, past the module and through it.
test_TheNamesThatUvmTakesGoThroughTheModule() {
  local with
  load_driver
  load_module
  ! dmesg | grep 'is not watched' || fail "a function was not found"
  for with in with without; do
    [ $with = with ] || unload_module
    insmod /test/uvm_call.ko
    equal "31 31" "$(cat /sys/module/uvm_call/parameters/dup_status /sys/module/uvm_call/parameters/free_status | tr '\n' ' ' | sed 's/ $//')" \
      "NV_ERR_INVALID_ARGUMENT twice, $with the module"
    rmmod uvm_call
  done
}

test_RmIsWatchedWhereMemoryGoesIntoDmaBuffers() {
  local function
  load_driver
  load_module
  for function in rm_dma_buf_dup_mem_handle rm_dma_buf_undup_mem_handle; do
    grep -q "$function" /sys/kernel/debug/kprobes/list || fail "$function is not watched"
  done
}

test_NothingComesOfNonsense() {
  load_driver
  load_module
  fuzz_for "${FUZZ_SECONDS:-5}"
}

test_FollowsItsReload() {
  local round
  load_module
  load_driver
  for round in 1 2 3; do
    wait_for 10 is_driver_unloaded
    equal "waiting for driver" "$(driver_state)" "state in round $round"
    load_driver
    equal hooked "$(driver_state)" "state in round $round"
    equal "root 0x0 end 0x0" "$(echo $(rm_client root end))" answers
  done
}

test_ComesAndGoesUnderLoad() {
  local round=0
  load_driver
  rm_client root clients=100000000 >/dev/null &
  echo $! >>/tmp/pids
  while [ $round -lt "${rounds:-4}" ] && [ $round -lt 50 ]; do
    load_module
    echo 1 >$tree/drain
    wait_for 10 is_unloaded
    round=$((round + 1))
    [ $((round % 10)) != 0 ] || progress "loaded and unloaded $round times"
  done
  end $!
  wait_for 10 is_driver_unloaded
}

run_tests Real
