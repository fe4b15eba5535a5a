#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A tree that was built and then copied or moved: it builds on, from where it is now.
#   moved_tree_test.sh BUILD    BUILD: not used; where the tree of this script is built
# Prints GoogleTest's lines; status 0 when nothing failed.
set -u
top=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
object=build/obj/shmctl/base/error.o

build() { # PLACE: one object that is compiled with a precompiled header; what was made goes to the log
  env -u MAKEFLAGS -u MAKELEVEL make -C "$work/$1" --no-print-directory $object >"$work/log" 2>&1
}
fail() {
  cat "$work/log"
  echo "moved_tree_test.sh: $*"
  failed=1
}
made() { grep -qF "$1" "$work/log"; }

failed=0
echo "[ RUN      ] MovedTree.BuildsOn"
start=$SECONDS
mkdir "$work/here"
(cd "$top" && tar -c --exclude=./build --exclude=./.git .) | tar -x -C "$work/here"
build here || fail "the tree does not build"
# Whatever lies where in make's memory.
for length in 1 100 1000 5000; do
  touch "$work/before"
  FILLED=$(printf "%0${length}d" 0) build here || fail "the tree does not build again"
  written=$(find "$work/here/build/parts" -newer "$work/before" -printf '%f ')
  [ -z "$written" ] || fail "nothing has changed, and these parts are said to have: $written"
done
mv "$work/here" "$work/there"
build there || fail "it does not build where it was moved to"
made shmctl/compat/precompiled.h || fail "the precompiled header still names the old place"
made shmctl/base/error.cc && fail "what was compiled at the old place was compiled again"
touch "$work/there/shmctl/base/error.h"
build there || fail "it does not build after a header has changed there"
made shmctl/base/error.cc || fail "a header that has changed there is not looked at"
took=$(((SECONDS - start) * 1000))
if [ $failed = 0 ]; then
  echo "[       OK ] MovedTree.BuildsOn ($took ms)"
else
  echo "[  FAILED  ] MovedTree.BuildsOn ($took ms)"
fi
exit $failed
