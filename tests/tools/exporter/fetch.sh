#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fetches what `make test-metrics` runs, where it is missing:  fetch.sh FOLDER
#
# Prometheus (with promtool) and its node exporter, of the packages of Debian or Ubuntu, into FOLDER: they are not installed,
# as each would start a service that listens. No root is needed: apt's own lists stay as they are. What is there already
# is not fetched again.
set -euo pipefail
folder=$(mkdir -p "${1:?a folder}" && cd "$1" && pwd)
export PATH=$folder/usr/bin:$PATH

missing=
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing=prometheus
command -v prometheus-node-exporter >/dev/null || missing="$missing prometheus-node-exporter"
[ -z "$missing" ] && exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  { echo "fetch.sh: there is no apt here: install$missing, or put the programs into PATH" >&2; exit 1; }

echo "gpushare: fetching $missing"
apt=$folder/apt
mkdir -p "$apt"/{lists/partial,cache/archives/partial,debs}
options=(-qq -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache")
[ "$(id -u)" != 0 ] || options+=(-o APT::Sandbox::User=root)
apt-get "${options[@]}" update
(cd "$apt/debs" && apt-get "${options[@]}" download $missing)
for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$folder"; done
rm -r "$apt"
