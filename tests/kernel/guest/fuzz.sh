# SPDX-License-Identifier: Apache-2.0
# Malformed, colliding and interrupted calls; the verdict is the kernel's log.
. /test/lib.sh
load_driver
load_module

test_NothingComesOfNonsense() {
  kmod_fuzz "${FUZZ_SECONDS:-5}" || fail "kmod_fuzz says $?"
  unload_module
}

run_tests Fuzz
