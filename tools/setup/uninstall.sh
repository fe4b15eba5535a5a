#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Removes what `make install` has put on a machine:  uninstall.sh STAGE DESTDIR [PURGE]
#   STAGE    where the same `make install` has put the same files
#   PURGE    not empty: also the configuration, whoever changed it, and what the agent keeps
# Folders that are empty then and were gpushare's alone go with their files.
set -eu
stage=$1 destination=$2 purge=${3-}
[ -n "$destination" ] || [ "$(id -u)" = 0 ] || { echo "uninstall: only root may remove what root has installed" >&2; exit 1; }

if [ -z "$destination" ]; then
  # What is frozen is thawed, and each program has its own time slice again.
  if [ -d /run/systemd/system ]; then
    systemctl disable --now gpushare-exporter.service gpushared.service 2>/dev/null || :
  fi
  # MPS outlives the service for its clients, and forks are followed for the agent that comes next.
  if [ -d /run/gpushare/mps ] && command -v nvidia-cuda-mps-control >/dev/null; then
    echo quit | CUDA_MPS_PIPE_DIRECTORY=/run/gpushare/mps timeout 5 nvidia-cuda-mps-control >/dev/null 2>&1 || :
  fi
  rm -rf /sys/fs/bpf/run-gpushare-region
  # Every program on the machine would complain of a library that is no longer there.
  # sudo may not find the installed program, wherever that is.
  if grep -qs libgpushare /etc/ld.so.preload; then "$(find "$stage" -type f -path '*/bin/gpushare')" preload disable >/dev/null; fi
else
  destination=$(realpath -m "$destination") # from here on we are elsewhere
fi

config=/etc/gpushare/gpushare.toml
cd "$stage"
find . -type f | sed 's|^\.||' | while read -r file; do
  if [ "$file" = $config ] && [ -z "$purge" ] && ! cmp -s ".$file" "$destination$file"; then
    [ ! -e "$destination$file" ] || echo "uninstall: $destination$file stays, as it was changed"
    continue
  fi
  rm -f "$destination$file"
done
find . -depth -type d -path '*gpushare*' | sed 's|^\.||' | while read -r folder; do
  rmdir "$destination$folder" 2>/dev/null || :
done

[ -z "$destination" ] || exit 0
[ ! -d /run/systemd/system ] || systemctl daemon-reload
if [ -n "$purge" ]; then
  rm -rf /etc/gpushare /var/lib/gpushare /run/gpushare
elif [ -e /var/lib/gpushare ]; then
  echo "uninstall: /var/lib/gpushare stays (the usage history); PURGE=1 removes it, too"
fi
if getent group gpushare >/dev/null; then
  echo "uninstall: the group gpushare stays, as files may belong to it; without it: groupdel gpushare"
fi
