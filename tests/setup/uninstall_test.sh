#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What tools/setup/uninstall.sh takes away, of a few files that stand for those of `make install`.
#   uninstall_test.sh BUILD    BUILD: not used
# Prints GoogleTest's lines; status 0 when nothing failed.
set -u
top=$(realpath "$(dirname "$0")/../..")

fail() { # WHAT: the test goes on, and has failed
  echo "uninstall_test.sh: $*"
  failed=1
}

# The same files in "$work/stage" and below the folder $1, which they belong to from the prefix $2 on.
install_both() {
  for place in "$work/stage" "$1"; do
    mkdir -p "$place$2/bin" "$place$2/lib/gpushare"
    echo library >"$place$2/lib/gpushare/libgpushare.so"
    printf '#!/bin/sh\necho "$@" >>%s/calls\n' "$work" >"$place$2/bin/gpushare"
    chmod +x "$place$2/bin/gpushare"
  done
}

# A packager may name a folder as seen from where make runs.
WhatIsBelowARelativeFolderGoes() {
  install_both "$work/image" /usr
  echo other >"$work/image/usr/bin/other"
  (cd "$work" && "$top/tools/setup/uninstall.sh" "$work/stage" image) || fail "status $?"
  [ "$(cd "$work/image" && find . -type f)" = ./usr/bin/other ] || fail "left: $(find "$work/image" -type f)"
  [ ! -e "$work/image/usr/lib/gpushare" ] || fail "an empty folder of gpushare's is left"
}

# sudo looks for programs in few folders, and the prefix may be none that anybody looks in.
TheLibraryIsNoLongerPreloadedWhereverTheProgramIs() {
  install_both "" "$work/prefix"
  unshare -m bash -c '
    cp -a /etc "$1/etc" && echo /nowhere/libgpushare.so >"$1/etc/ld.so.preload" && mount --bind "$1/etc" /etc &&
      PATH=/usr/bin:/bin:/usr/sbin "$2" "$1/stage" ""' - "$work" "$top/tools/setup/uninstall.sh" 2>"$work/log" ||
    fail "status $?: $(grep -v ld.so "$work/log")"
  [ "$(cat "$work/calls")" = "preload disable" ] || fail "it was not asked to: $(cat "$work/calls")"
  [ ! -e "$work/prefix/bin/gpushare" ] || fail "the program is left"
}

run() { # NAME: one test, in a folder of its own
  work=$(mktemp -d)
  touch "$work/calls"
  failed=0
  local start=$SECONDS
  echo "[ RUN      ] Uninstall.$1"
  "$1"
  local took=$(((SECONDS - start) * 1000))
  rm -rf "$work"
  if [ $failed = 0 ]; then
    echo "[       OK ] Uninstall.$1 ($took ms)"
  else
    echo "[  FAILED  ] Uninstall.$1 ($took ms)"
    status=1
  fi
}

status=0
run WhatIsBelowARelativeFolderGoes
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
  run TheLibraryIsNoLongerPreloadedWhereverTheProgramIs
else
  printf 'uninstall_test.sh:1: Skipped\n%s\n[  SKIPPED ] Uninstall.%s (0 ms)\n' \
    "needs root and a mount namespace" TheLibraryIsNoLongerPreloadedWhereverTheProgramIs
fi
exit $status
