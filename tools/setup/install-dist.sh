#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the unpacked distribution that it lies in: install-dist.sh [PREFIX] (default /usr/local).
set -eu
prefix=${1:-/usr/local}
from=$(cd "$(dirname "$0")/.." && pwd)
[ "$(id -u)" = 0 ] || { echo "install-dist.sh: run it as root" >&2; exit 1; }
install -d "$prefix/bin" "$prefix/sbin" "$prefix/include" "$prefix/lib/gpushare/sim" "$prefix/lib/gpushare/python" "$prefix/share/man/man1" \
  "$prefix/share/man/man5" "$prefix/share/man/man8" /etc/gpushare
install -m 755 "$from"/bin/gpushare "$from"/bin/gpushare-top "$from"/bin/gpushare-sim "$from"/bin/gpushare-exporter "$prefix/bin"
install -m 755 "$from"/bin/gpushared "$prefix/sbin"
install -m 755 "$from"/lib/sim/libcuda.so.1 "$prefix/lib/gpushare/sim"
install -m 755 "$from"/lib/libgpushare.so "$prefix/lib/gpushare"
[ ! -e "$from"/lib/slurm ] || install -D -m 644 -t "$prefix/lib/gpushare/slurm" "$from"/lib/slurm/gpushare_spank.so
install -m 644 "$from/share/gpushare.h" "$prefix/include"
install -m 644 "$from/share/gpushare.py" "$prefix/lib/gpushare/python"
install -m 644 "$from"/share/man/*.1 "$prefix/share/man/man1"
install -m 644 "$from"/share/man/*.5 "$prefix/share/man/man5"
install -m 644 "$from"/share/man/*.8 "$prefix/share/man/man8"
(cd "$from" && find . -name '*.md' -o -path './docs/*' -type f -o -path './libraries/*' -type f) | while read -r page; do
  install -D -m 644 "$from/$page" "$prefix/share/doc/gpushare/$page"
done
install -d "$prefix/share/gpushare"
install -m 644 "$from/share/alerts.yml" "$from/share/grafana-dashboard.json" "$prefix/share/gpushare"
# Its members may change tenants.
getent group gpushare >/dev/null || groupadd --system gpushare
# The example's own tenants are commented out: on this machine they belong to nobody yet.
[ -e /etc/gpushare/gpushare.toml ] ||
  sed '/^\[tenant\.inference\]/,$s/^./# &/' "$from/share/gpushare.toml.example" > /etc/gpushare/gpushare.toml
if [ -d /run/systemd/system ]; then
  for unit in gpushared.service gpushare-exporter.service; do
    sed "s|/usr/local/|$prefix/|g" "$from/share/$unit" > "/etc/systemd/system/$unit"
  done
  systemctl daemon-reload
  echo "installed; start it with: systemctl enable --now gpushared"
else
  echo "installed; no systemd here: start $prefix/sbin/gpushared as root"
fi
