# SPDX-License-Identifier: Apache-2.0
# Malformed, colliding and interrupted calls for $FUZZ_SECONDS. The kernel's log is the verdict.
. /test/lib.sh

test_NothingComesOfNonsense() {
  load_driver
  load_module
  fuzz_for "${FUZZ_SECONDS:-5}"
  unload_module
}

run_tests Fuzz
