#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-driver.sh FOLDER: makes FOLDER/source, NVIDIA's open kernel modules from the distribution's own
# package of their source. That is in contrib, which few machines have configured. So a configuration of
# apt below FOLDER asks for it from the archives that this machine names for its release; the machine's
# own configuration is not changed. If it cannot be had the script says why, and the tests skip.
set -eu
package=nvidia-open-kernel-source
mkdir -p "$1/apt/lists/partial" "$1/apt/cache/archives/partial" "$1/apt/parts"
folder=$(realpath "$1")
[ ! -e "$folder/source" ] || exit 0
chmod 755 "$folder" "$folder/apt" # apt fetches as its own user

give_up() {
  echo "fetch-driver.sh: $1" >&2
  exit 0
}
# shellcheck source=/dev/null
. /etc/os-release
codename=${VERSION_CODENAME:-unknown}

# Takes the sources of this release, in both forms that apt has, and adds components.
awk -v release="$codename" 'BEGIN { RS = ""; FS = "\n" } {
  of_release = 0; text = ""
  for (i = 1; i <= NF; i++) {
    if ($i ~ /^#/) continue
    if ($i ~ "^Suites:(.*[ \t])?" release "([ \t-]|$)") of_release = 1
    if ($i ~ /^Components:/) $i = "Components: main contrib non-free"
    text = text $i "\n"
  }
  if (of_release && text ~ /Types: *deb/) print text }' /etc/apt/sources.list.d/*.sources \
  >"$folder/apt/parts/release.sources" 2>/dev/null || true
sed -nE "s/^(deb +(\[[^]]*\] +)?[^ ]+ +$codename(-[^ ]*)?) .*/\1 main contrib non-free/p" \
  /etc/apt/sources.list /etc/apt/sources.list.d/*.list >"$folder/apt/parts/release.list" 2>/dev/null || true

private=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$folder/apt/parts"
  -o "Dir::State::lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache")
apt-get "${private[@]}" update -qq >"$folder/apt/log" 2>&1 || give_up "$(tail -n 1 "$folder/apt/log")"
(cd "$folder/apt" && apt-get "${private[@]}" download -qq $package >log 2>&1) ||
  give_up "no package $package: $(tail -n 1 "$folder/apt/log")"
dpkg-deb -x "$folder"/apt/$package*.deb "$folder/apt/unpacked"
mkdir -p "$folder/source.new"
tar -xf "$folder"/apt/unpacked/usr/src/*.tar* -C "$folder/source.new"
rm -rf "$folder/apt"
mv "$folder/source.new" "$folder/source"
