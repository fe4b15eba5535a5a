#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-kernel.sh FOLDER: makes FOLDER/vmlinuz, the kernel that the installed headers of a cloud kernel
# belong to: the machine's own copy, or the distribution's package.
# fetch-kernel.sh FOLDER SERIES FLAVOUR: makes FOLDER/vmlinuz and its headers, FOLDER/build, of the
# newest packages of e.g. 6.12 cloud or 6.1 rt.
# Packages are unpacked and not installed, so that the machine's boot menu stays as it is. If one cannot
# be had the script says why, and the tests skip.
set -eu
folder=$1
series=${2-} flavour=${3-}
mkdir -p "$folder"
folder=$(realpath "$folder")

give_up() {
  echo "fetch-kernel.sh: $1" >&2
  exit 0
}
# download PACKAGE...: puts their files below $folder/scratch.
download() {
  (cd "$folder/scratch" && apt-get download -qq "$@" >log 2>&1) ||
    give_up "no package $*: $(tail -n 1 "$folder/scratch/log")"
}
fetch_image() { # VERSION
  download "linux-image-$1"
  dpkg-deb --fsys-tarfile "$folder"/scratch/linux-image-*.deb |
    tar -xO "./boot/vmlinuz-$1" >"$folder/scratch/vmlinuz"
  mv "$folder/scratch/vmlinuz" "$folder/vmlinuz"
}
mkdir -p "$folder/scratch"
chmod 755 "$folder/scratch" # apt fetches as its own user
trap 'rm -rf "$folder/scratch"' EXIT

if [ -z "$series" ]; then
  headers=$(ls -dv /lib/modules/*-cloud-amd64/build 2>/dev/null | tail -n 1)
  [ -n "$headers" ] || exit 0 # The test that needs the kernel says so.
  version=$(basename "$(dirname "$headers")")
  if [ -r "/boot/vmlinuz-$version" ]; then
    ln -sf "/boot/vmlinuz-$version" "$folder/vmlinuz"
  else
    fetch_image "$version"
  fi
  exit 0
fi

headers=$(apt-cache pkgnames "linux-headers-$series." | grep -E -- "-[0-9]+-$flavour-amd64\$|\+deb[0-9]+-$flavour-amd64\$" |
  sort -V | tail -n 1)
[ -n "$headers" ] || give_up "no package linux-headers-$series*-$flavour-amd64"
version=${headers#linux-headers-}
candidate=$(apt-cache policy "$headers" | sed -n 's/^ *Candidate: //p')
[ "$(cat "$folder/made-of" 2>/dev/null)" != "$headers $candidate" ] || exit 0

rm -rf "$folder"/{made-of,vmlinuz,build,unpacked}
# These are the headers that all flavours share, and the programs that build modules.
mapfile -t needed < <(apt-cache show "$headers=$candidate" | sed -n 's/^Depends: //p' | head -n 1 | tr ',|' '\n\n' |
  grep -oE 'linux-(headers-[^ ]*common[^ ]*|kbuild-[^ ]*)' | sort -u)
download "$headers=$candidate" "${needed[@]}"
for package in "$folder"/scratch/*.deb; do dpkg-deb -x "$package" "$folder/unpacked"; done
fetch_image "$version"
sed -i "s# /usr/src# $folder/unpacked/usr/src#" "$folder/unpacked/usr/src/$headers/Makefile"
ln -sfn "unpacked/usr/src/$headers" "$folder/build"
echo "$headers $candidate" >"$folder/made-of"
