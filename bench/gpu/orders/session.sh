#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a borrowed GPU is asked about jobs and turns, each set in one call of nine minutes at most:
#     session.sh SET [BUILD] [OUT] [--sim]
# turns       two jobs take turns: gaps and costs, C++ and PyTorch; beside an endless kernel and no shim    1 GPU, torch
# trace-told  100 jobs by fifo and srtf with lengths told, and beside them the driver's slices              1 GPU
# trace       the same with lengths unknown and learnt, and in turns                                        1 GPU
# trace-mps   the same under MPS                                                                            1 GPU
# models      34 jobs that train models of PyTorch, by fifo and srtf                                        1 GPU, torchvision
# models-peers  the same by slices and MPS                                                                  1 GPU, torchvision
# two-gpus    these 34 jobs placed on two GPUs, and a job of two ranks that takes turns                     2 GPUs, torchvision
# gangs       a job of two ranks under fair: cap and weights, beside programs                               2 GPUs, torch
# gangs-more  a model that lies on both GPUs; a training while agents are killed                           2 GPUs, torch
# gangs-jobs  the same beside another such job, and what natively comes of it                               2 GPUs, torch
# BUILD: the folder that make or make dist has filled (build). OUT: where FILE.jsonl of bench/results are added to (build/bench).
# Every process has its limit. At the end all that a dead agent may have left is undone, and the driver's own complaints are
# printed (dmesg, Xid). The exit status is that of the first part that failed. --sim tries the set on a simulated GPU, as far
# as it goes there: PyTorch's parts are left out, and the trace is a fifth as long.
# shellcheck disable=SC2086  # lists of words
set -u
limit=540
began=$(date +%s)
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '3,/^set -u/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
sim=
words=
for word in "$@"; do
  case $word in --sim) sim=--sim ;; -*) usage ;; *) words="$words $word" ;; esac
done
set -- $words
[ $# -ge 1 ] || usage
wanted=$1
build=${2:-build}
out=${3:-$build/bench}
mkdir -p "$out"
failed=0

# Seconds that are left, without those that the end takes.
left() { echo $((limit - 15 - ($(date +%s) - began))); }

# part SECONDS FILE SCRIPT ARGUMENT...: at most as long as is left. Ended by SIGTERM, a script ends all that it started.
part() {
  seconds=$1 file=$2 script=$3
  shift 3
  [ "$(left)" -lt "$seconds" ] && seconds=$(left)
  if [ "$seconds" -lt 20 ]; then
    echo "left out for want of time: $script $*"
    [ "$failed" != 0 ] || failed=1
    return
  fi
  echo "== $script $* (at most $seconds s)"
  timeout --kill-after=10 "$seconds" python3 "$here/$script" "$build" "$@" --out "$out/$file.jsonl"
  code=$?
  echo "== $script $*: status $code, $(($(date +%s) - began)) s in all"
  [ "$code" = 0 ] || [ "$failed" != 0 ] || failed=$code
}
torch() { if [ -n "$sim" ]; then echo "left out, simulated: $*"; else part "$@"; fi; }

if [ -n "$sim" ]; then scale="--scale 750 --sim"; else scale="--scale 150"; fi
if [ -n "$sim" ]; then models="--scale 400 --sim"; else models="--scale 83"; fi
case $wanted in
turns)
  part 170 turns turns.py --only iterations $sim
  torch 60 turns turns.py --only endless
  torch 90 turns turns.py --only no-shim
  torch 150 turns turns.py --only torch
  torch 150 turns turns.py --only steps
  ;;
trace-told) part 525 trace trace.py --ways fifo srtf slices $scale ;;
trace) part 525 trace trace.py --ways unknown learnt turns $scale ;;
trace-mps) if [ -n "$sim" ]; then echo "left out, simulated: MPS"; else part 400 trace trace.py --ways mps $scale; fi ;;
models) part 525 trace trace.py --models --every 3 --ways fifo srtf $models ;;
models-peers)
  if [ -n "$sim" ]; then peers=slices; else peers="slices mps"; fi
  part 525 trace trace.py --models --every 3 --ways $peers $models
  ;;
two-gpus)
  part 360 trace trace.py --models --every 3 --gpus 2 --ways srtf $models
  torch 200 turns turns.py --only nccl
  ;;
gangs) torch 520 gangs gangs.py --only weights-1-1 cap-40 weights-1-3 weights-3-1 ;;
gangs-jobs)
  torch 200 gangs gangs.py --only weights-1-1 --off
  torch 320 gangs gangs.py --only jobs-1-1 jobs-1-3 jobs-3-1
  ;;
gangs-more)
  torch 240 gangs gangs.py --job tensor --only weights-1-1 cap-40
  torch 280 gangs gangs.py --only weights-1-1 --seconds 150 --kills 20
  ;;
*) usage ;;
esac

# Each script's agent has a control plane of its own, whose name begins with gpushare-rig-.
for region in /dev/shm/gpushare-rig-*; do
  if [ -n "$sim" ] || [ ! -e "$region" ] || [ "${region%.lock}" != "$region" ]; then continue; fi
  echo "what the agent of $region has left is undone"
  timeout 10 "$build"/bin/gpushared --recover --region "/${region#/dev/shm/}" || failed=1
done
echo "== the driver's complaints:"
dmesg 2>/dev/null | grep -i xid || echo none
echo "== status $failed after $(($(date +%s) - began)) s"
exit "$failed"
