#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--results DIR] [STEP...]: runs everything that needs a machine with a GPU. It uses the
# files beside this script, and needs only the C library and a driver. Steps (default: all):
#   tests      compares the GPU's bytes with the reference, over random jobs of every op, type and form
#   server     compares the bytes of servers with --backend=cuda and --backend=cpu
#   memcheck   the tests under compute-sanitizer, if it is there and accepts the GPU
#   racecheck  the same, for races
#   bench      bench_cuda: compares with device copies and fills, warm and cold
#   peers      peers.py: compares with PyTorch eager and compiled and with kernels of other projects,
#              if python3 has PyTorch
# Prints PASS, FAIL or SKIP for each step, and writes logs, tables and JSON to DIR (default:
# results). Exit status: 0 nothing failed, 1 a step failed, 3 there is no CUDA device.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/bin
results=$here/results
steps=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --results) results=$(mkdir -p "$2" && cd "$2" && pwd) && shift ;;
    tests | server | memcheck | racecheck | bench | peers) steps+=("$1") ;;
    *) echo "run.sh: unknown argument $1, accepted: --results DIR, tests, server, memcheck, racecheck, bench, peers" >&2; exit 2 ;;
  esac
  shift
done
[[ ${#steps[@]} -gt 0 ]] || steps=(tests server memcheck racecheck bench peers)
mkdir -p "$results"

# Random jobs under a sanitizer, which is some hundred times slower.
sanitized_jobs=60
passed=0 failed=0 skipped=0
servers=()
cleanup() { [[ ${#servers[@]} == 0 ]] || kill "${servers[@]}" 2>/dev/null || true; }
trap cleanup EXIT

say() { printf '%s\n' "$*" | tee -a "$results/summary.txt"; }
pass() { passed=$((passed + 1)); say "PASS  $*"; }
fail() { failed=$((failed + 1)); say "FAIL  $*"; }
skip() { skipped=$((skipped + 1)); say "SKIP  $*"; }
# The carried libraries are for the programs of this project only: others have their own. The driver may be in what was set.
libraries=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ours() { LD_LIBRARY_PATH=$libraries "$@"; }

# logged NAME COMMAND...: runs it, its output to NAME.log and here.
logged() {
  local log=$results/$1.log
  shift
  "$@" 2>&1 | tee "$log"
}

# --- steps ----------------------------------------------------------------------------------------

step_tests() {
  if PHASOR_REQUIRE_GPU=1 logged tests "$bin/cuda_driver_test"; then
    pass "tests: $(grep -E '^\[  PASSED  \]' "$results/tests.log")"
  else
    fail "tests: see tests.log"
  fi
}

# start_server BACKEND: sets `address`.
start_server() {
  local log=$results/server-$1.log tries
  # Not through a function: the shell in between would take the signal that ends the server.
  LD_LIBRARY_PATH=$libraries "$bin/phasor-server" --backend="$1" --listen 127.0.0.1:0 >"$log" 2>&1 &
  servers+=($!)
  for ((tries = 0; tries < 300; tries++)); do
    address=$(grep -oE '127\.0\.0\.1:[1-9][0-9]*' "$log" | head -1) || true
    [[ -z $address ]] || return 0
    kill -0 "${servers[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log"
  return 1
}

step_server() {
  local address backend case dtype files=0 log=$results/server.log
  local -A at
  for backend in cuda cpu; do
    start_server $backend || { fail "server: --backend=$backend did not start"; return; }
    at[$backend]=$address
  done
  grep -q 'backend.*cuda' "$results/server-cuda.log" || { fail "server: it does not run on cuda"; return; }
  : >"$log"
  for case in rope-half-split rope-interleaved; do
    for dtype in f2 f4; do
      for backend in cuda cpu; do
        ours "$bin/phasor" rope --server "${at[$backend]}" --preset $case --head-dim 128 --range 130000:130128 \
          --input "$here/data/q.$dtype.npy" --output "$results/$backend.npy" >>"$log" 2>&1 ||
          { fail "server: $case $dtype on $backend, see server.log"; return; }
      done
      cmp "$results/cuda.npy" "$results/cpu.npy" >>"$log" 2>&1 || { fail "server: $case $dtype: other bytes"; return; }
      if cmp -s "$results/cuda.npy" "$here/data/q.$dtype.npy"; then fail "server: $case $dtype: not rotated"; return; fi
      files=$((files + 1))
    done
  done
  for backend in cuda cpu; do
    ours "$bin/phasor" encode --server "${at[$backend]}" --preset transformer --dim 512 --range 0:4096 \
      --output "$results/$backend.npy" >>"$log" 2>&1 || { fail "server: encode on $backend, see server.log"; return; }
  done
  cmp "$results/cuda.npy" "$results/cpu.npy" >>"$log" 2>&1 || { fail "server: encode: other bytes"; return; }
  rm -f "$results"/{cuda,cpu}.npy
  kill -TERM "${servers[@]}"
  local server rc=0
  for server in "${servers[@]}"; do wait "$server" || rc=$?; done # of several, wait tells the last one's status
  servers=()
  [[ $rc == 0 ]] || { fail "server: status $rc after SIGTERM"; return; }
  pass "server: $files rotations and an encoding of --backend=cuda have the bytes of --backend=cpu"
}

# sanitize TOOL
sanitize() {
  local tool
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    { skip "$1: NOT CHECKED, no compute-sanitizer on the path or in /usr/local/cuda/bin"; return; }
  local rc=0
  PHASOR_REQUIRE_GPU=1 PHASOR_RANDOM_JOBS=$sanitized_jobs \
    logged "$1" "$tool" --tool "$1" --error-exitcode 9 "$bin/cuda_driver_test" || rc=$?
  if grep -qiE 'device not supported|not supported on this (device|system)|failed to initialize' "$results/$1.log"; then
    skip "$1: NOT CHECKED, compute-sanitizer does not accept this device: $(grep -iE 'not supported|failed to init' "$results/$1.log" | head -1)"
  elif [[ $rc == 0 ]] && grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$results/$1.log"; then
    pass "$1: $(grep SUMMARY "$results/$1.log" | tail -1)"
  else
    fail "$1: status $rc, see $1.log"
  fi
}
step_memcheck() { sanitize memcheck; }
step_racecheck() { sanitize racecheck; }

step_bench() {
  if logged bench "$bin/bench_cuda" "$results/cuda.json"; then
    pass "bench: $(tail -1 "$results/bench.log"); see bench.log, cuda.json"
  else
    fail "bench: see bench.log"
  fi
}

step_peers() {
  if ! command -v python3 >/dev/null || ! python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    skip "peers: NOT COMPARED, no python3 whose PyTorch sees the device"
    return
  fi
  if logged peers python3 "$here/peers/peers.py" "$here" "$results/cuda_peers.json"; then
    pass "peers: $(tail -1 "$results/peers.log"); see peers.log, cuda_peers.json"
  else
    fail "peers: see peers.log"
  fi
}

# --- all ------------------------------------------------------------------------------------------

: >"$results/summary.txt"
say "phasor gpu-test of revision $(cat "$here/REVISION"), $(date --utc +%Y-%m-%dT%H:%M:%SZ)"
if ! card=$("$bin/bench_cuda" --card 2>"$results/card.log"); then
  say "FAIL  no CUDA device, nothing was tested: $(cat "$results/card.log")"
  exit 3
fi
say "card: $card"
for step in "${steps[@]}"; do
  say "--- $step"
  "step_$step"
done
say "gpu-test: $passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 ]]
