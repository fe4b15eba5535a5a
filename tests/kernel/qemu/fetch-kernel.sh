#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fetch-kernel.sh FOLDER: makes FOLDER/vmlinuz, the kernel that the installed headers of a cloud kernel
# belong to: the machine's own copy, or the distribution's package, unpacked and not installed, so that
# the machine's boot menu stays as it is. Where it cannot be had it says why, and the tests skip.
set -eu
folder=$1
headers=$(ls -dv /lib/modules/*-cloud-amd64/build 2>/dev/null | tail -n 1)
[ -n "$headers" ] || exit 0 # whoever needs the kernel says so
version=$(basename "$(dirname "$headers")")
mkdir -p "$folder"
if [ -r "/boot/vmlinuz-$version" ]; then
  ln -sf "/boot/vmlinuz-$version" "$folder/vmlinuz"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch" # apt fetches as a user of its own
if ! (cd "$scratch" && apt-get download -qq "linux-image-$version" >log 2>&1); then
  echo "fetch-kernel.sh: no package linux-image-$version: $(tail -n 1 "$scratch/log")" >&2
  exit 0
fi
dpkg-deb -x "$scratch"/linux-image-*.deb "$scratch/unpacked"
mv "$scratch/unpacked/boot/vmlinuz-$version" "$folder/vmlinuz"
