#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-ubuntu.sh FOLDER SERIES: makes FOLDER/vmlinuz and FOLDER/build of Ubuntu 24.04's newest kernel of a
# series, e.g. 6.14. FOLDER/build stands for the headers: make there builds modules in ROOT, a folder beside
# FOLDER with Ubuntu's own compiler, which these headers want.
# Packages are unpacked and not installed, and apt keeps what it knows of Ubuntu's archive in a folder of its
# own. If something cannot be had the script says why, and the tests skip.
set -eu
folder=$1 series=$2
release=noble mirror=http://archive.ubuntu.com/ubuntu
mkdir -p "$folder"
folder=$(realpath "$folder")
ubuntu=$(dirname "$folder")/ubuntu
root=$ubuntu/root

give_up() {
  echo "fetch-ubuntu.sh: $1" >&2
  exit 0
}
[ "$(id -u)" = 0 ] || give_up "only root can build modules in another system's root"
mkdir -p "$ubuntu"/{lists/partial,cache/archives/partial,keyring} "$folder"

# apt_of LISTS SOURCE COMMAND...: apt, which knows nothing but this source and that nothing is installed.
apt_of() {
  local lists=$ubuntu/$1
  printf '%s\n' "$2" >"$lists.list"
  mkdir -p "$lists/partial"
  : >"$ubuntu/status"
  shift 2
  "$@" -qq -o Dir::State::Lists="$lists" -o Dir::Etc::SourceList="$lists.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::Status="$ubuntu/status" -o Dir::State::extended_states="$ubuntu/extended" -o Dir::Cache="$ubuntu/cache" \
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none -o APT::Sandbox::User=root \
    -o Debug::NoLocking=1 -o APT::Install-Recommends=0
}
keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg
backports="deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm-backports main"
if [ ! -e "$keyring" ]; then
  keyring=$ubuntu/keyring$keyring
  if [ ! -e "$keyring" ]; then
    apt_of backports "$backports" apt-get update >"$ubuntu/log" 2>&1 &&
      (cd "$ubuntu/keyring" && apt_of backports "$backports" apt-get download ubuntu-keyring) >>"$ubuntu/log" 2>&1 ||
      give_up "no keyring of Ubuntu's archive: $(tail -n 1 "$ubuntu/log")"
    dpkg-deb -x "$ubuntu"/keyring/ubuntu-keyring_*.deb "$ubuntu/keyring"
  fi
fi
source=$(printf "deb [signed-by=$keyring] $mirror %s main\n" "$release" "$release-updates" "$release-security")
ubuntu_apt() { apt_of "$release" "$source" "$@"; }
ubuntu_apt apt-get update >"$ubuntu/log" 2>&1 || give_up "Ubuntu's archive does not answer: $(tail -n 1 "$ubuntu/log")"

headers=$(ubuntu_apt apt-cache pkgnames "linux-headers-$series." | grep -E -- '-[0-9]+-generic$' | sort -V | tail -n 1)
[ -n "$headers" ] || give_up "no package linux-headers-$series*-generic"
version=${headers#linux-headers-}
[ "$(cat "$folder/made-of" 2>/dev/null)" != "$headers" ] || exit 0

# base-files comes first, because it says which folders of the root are links.
compiler="base-files gcc gcc-13 make bash dash coreutils sed grep mawk findutils diffutils perl-base"
# shellcheck disable=SC2086 # words
ubuntu_apt apt-get install --download-only -y $compiler "$headers" >"$ubuntu/log" 2>&1 &&
  (cd "$folder" && ubuntu_apt apt-get download "linux-image-$version") >>"$ubuntu/log" 2>&1 ||
  give_up "no packages of $version and its compiler: $(tail -n 1 "$ubuntu/log")"
rm -rf "$folder"/{made-of,vmlinuz,build}
mkdir -p "$root"
for package in "$ubuntu"/cache/archives/base-files_*.deb "$ubuntu"/cache/archives/*.deb; do
  [ -e "$root/.unpacked/$(basename "$package")" ] || dpkg-deb -x "$package" "$root"
  mkdir -p "$root/.unpacked"
  : >"$root/.unpacked/$(basename "$package")"
done
ln -sf mawk "$root/usr/bin/awk"
mkdir -p "$root"/{proc,dev,tmp}
dpkg-deb --fsys-tarfile "$folder"/linux-image-*.deb | tar -xO "./boot/vmlinuz-$version" >"$folder/vmlinuz.new"
rm -f "$folder"/linux-image-*.deb

# The folder of the module, and REPO if it is given, are in the root where they are here.
mkdir -p "$folder/build"
cat >"$folder/build/Makefile" <<END
# Written by fetch-ubuntu.sh. The same as the kernel's own, for make -C HERE M=FOLDER modules. Of W= it
# takes no notice, because that wants programs that are not in the root.
.PHONY: modules
modules:
	@unshare --mount sh -ec 'for folder in /proc /dev \$(M) \$(REPO); do \\
	  mkdir -p "$root\$\$folder"; mount --rbind "\$\$folder" "$root\$\$folder"; done; \\
	  exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \\
	  make -s -C "/usr/src/$headers" M="\$(M)" \$(if \$(REPO),REPO="\$(REPO)") \\
	  \$(if \$(STANDIN_ENTRY),STANDIN_ENTRY=\$(STANDIN_ENTRY)) modules'
END
mv "$folder/vmlinuz.new" "$folder/vmlinuz"
echo "$headers" >"$folder/made-of"
