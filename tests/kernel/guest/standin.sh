# SPDX-License-Identifier: Apache-2.0
# The stand-in driver answers as the real one was seen to. The other suites rely on this.
. /test/lib.sh
load_driver

test_AFreezeIsCountedAndOutlivesWhoAsked() {
  busy_client
  rm_client open freeze="$started" freeze="$started"
  equal 2 "$(freezes_of "$started")" freezes
  rm_client open thaw="$started"
  is_frozen "$started" || fail "one thaw undid two freezes"
  rm_client open thaw="$started" thaw="$started" freeze="$started"
  equal 1 "$(freezes_of "$started")" "freezes after a surplus thaw"
}

test_AFrozenProcessUsesNoGpuTime() {
  busy_client
  has_true_share "$started" 95 100 0.3
  rm_client open freeze="$started"
  equal 0 "$(true_share "$started" 0.3)" "share while frozen"
}

test_GroupsShareByTheirSlices() {
  local one
  busy_client && one=$started
  busy_client slice=6144
  # That is 2048 of 2048 + 6144 + two switches of 80 us.
  has_true_share "$one" 22 27 0.8
}

test_AGroupIsKnownOnlyThroughItsOwnersFile() {
  busy_client
  equal 0x23 "$(rm_client open foreign-slice="$started" | awk '/foreign/ { print $2 }')" status
  equal 2048 "$(slice_of "$started")" slice
}

test_AKilledProcessLeavesNothing() {
  busy_client alloc=128
  equal $((128 << 20)) "$(video_memory_used)" "video memory"
  kill -9 "$started"
  wait_for 5 is_gone "$started"
  equal 0 "$(video_memory_used)" "video memory"
  equal "" "$(freezes_of "$started")" "its channels"
}

test_EveryWayToMemoryTakesIt() {
  client open alloc=1 alloc21=2 heap=8 range=16 xfer=4 tiled=32 echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal "" "$(grep = "/tmp/client.$started" | grep -v ' 0x0$' || true)" "answers other than 0"
  equal $((63 << 20)) "$(video_memory_used)" "video memory"
}

test_MemoryIsFreedWithItsLastName() {
  client open alloc=64 dup free echo=done wait
  wait_for 5 grep -q done "/tmp/client.$started"
  equal $((64 << 20)) "$(video_memory_used)" "video memory"
  rm_client open alloc=64 dup end
  equal $((64 << 20)) "$(video_memory_used)" "video memory after another's end"
}

test_MemoryThatIsNotThereIsRefused() {
  equal 0x51 "$(rm_client open alloc=2000 | awk '/alloc/ { print $2 }')" status
  equal 0 "$(video_memory_used)" "video memory"
}

test_TheDriverStaysWhileItIsOpen() {
  busy_client
  ! rmmod nvidia 2>/dev/null || fail "unloaded under a client"
  end "$started"
  unload_driver
  load_driver
  rm_client open
}

run_tests Standin
