#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails when a program of the folder needs a newer glibc than 2.34, or a library that a bare machine
# with an NVIDIA driver does not have.
set -eu
bad=0
# shellcheck disable=SC2044 # names of our own, without blanks
for file in $(find "$1" -type f -perm -u+x); do
  readelf -h "$file" >/dev/null 2>&1 || continue
  newer=$(objdump -T "$file" | grep -oE 'GLIBC_2\.[0-9]+' | sort -u -V | awk -F. '$2 > 34' | tr '\n' ' ')
  [ -z "$newer" ] || { echo "check-dist: $file needs $newer" >&2; bad=1; }
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libgcc_s|libcuda|ld-linux-x86-64|libdl|libpthread)\.so\.' | tr '\n' ' ' || true)
  [ -z "$needed" ] || { echo "check-dist: $file needs $needed" >&2; bad=1; }
done
exit $bad
