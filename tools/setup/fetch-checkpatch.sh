#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch-checkpatch.sh FOLDER: puts the kernel's scripts/checkpatch.pl and its word lists there, from the
# distribution's package of the kernel's source, which is unpacked and not installed: no other package
# has it. Where it cannot be had it says why, and the lint goes on without.
set -eu
folder=$1
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch" # apt fetches as a user of its own
package=$(apt-cache depends linux-source 2>/dev/null | sed -n 's/^ *Depends: \(linux-source-[0-9.]*\)$/\1/p' | head -n 1)
if [ -z "$package" ] || ! (cd "$scratch" && apt-get download -qq "$package" >log 2>&1); then
  echo "fetch-checkpatch.sh: no package linux-source: $(tail -n 1 "$scratch/log" 2>/dev/null)" >&2
  exit 0
fi
dpkg-deb --fsys-tarfile "$scratch"/linux-source-*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
  xz -dc | tar -x -C "$folder" --strip-components=2 --wildcards '*/scripts/checkpatch.pl' \
  '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch'
