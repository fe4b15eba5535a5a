#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A stand-in for nvidia-cuda-mps-control, as far as gpushared sees it: with -d it starts a daemon that
# holds the pipe directory; without an option it takes commands from standard input. The files
# `servers`, `state` and `clients` in that directory say what it answers; `calls` lists its questions.
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
pid_file=nvidia-cuda-mps-control.pid
is_running() {
  [ -s "$pid_file" ] || return 1
  # A daemon that has ended but was not reaped yet does not run.
  case $(sed 's/.*) //' "/proc/$(cat "$pid_file")/stat" 2>/dev/null) in '' | [ZX]*) return 1 ;; esac
}
case "${1:-}" in
-d)
  echo "$* GPUS=${CUDA_VISIBLE_DEVICES:-}" >>calls
  is_running && { echo "An instance of this daemon is already running"; exit 1; }
  rm -f quit
  setsid "$0" --daemon </dev/null >/dev/null 2>&1 &
  until is_running; do sleep 0.01; done
  ;;
--daemon)
  # Of two that are started at once, one is the daemon, as with the real one.
  exec 9>lock
  flock -w 1 9 || exit 0
  echo $$ >"$pid_file.new" && mv "$pid_file.new" "$pid_file"
  # After `quit` the daemon ends with its last client.
  while [ -e "$pid_file" ] && { [ ! -e quit ] || [ -s clients ]; }; do sleep 0.05; done
  rm -f "$pid_file"
  ;;
'')
  is_running || { echo "Cannot find MPS control daemon process"; exit 1; }
  while read -r command argument; do
    echo "$command $argument" >>calls
    case $command in
    get_server_list) cat servers 2>/dev/null ;;
    get_server_status) cat state 2>/dev/null || echo ACTIVE ;;
    get_client_list) cat clients 2>/dev/null ;;
    quit) : >quit ;;
    esac
  done
  ;;
esac
exit 0
