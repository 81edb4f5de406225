#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [--results DIR] [STEP...]: runs everything that needs a machine with a GPU. It uses the
# files beside this script, and needs only the C library and a driver. Steps (default: all):
#   tests      compares the GPU's bytes with the reference, over random jobs of every op, type and form, and
#              random moves of keys of every code and layout
#   server     compares the bytes of servers with --backend=cuda and --backend=cpu
#   ipc        the same for memory that another process exports to the server
#   restart    loses the server's device; the server ends with 75, and the next one computes
#   memcheck, initcheck, synccheck, racecheck
#              the tests under compute-sanitizer, if it is there and accepts the GPU
#   bench      bench_cuda: compares with device copies and fills, warm and cold
#   peers      peers.py: compares with PyTorch eager and compiled and with kernels of other projects,
#              if python3 has PyTorch
#   cores      bench_cores: calls and rotations of the CPU on 1, 2, 4, ... cores, beside an echo and memmove. It uses no GPU
# The device must compute: what the CPU did in its place is a failure. Prints PASS, FAIL or SKIP for
# each step. Writes logs, tables and JSON to DIR (default: results) and all of it to DIR.tar.gz. A
# later run in the same DIR replaces the lines of its own steps in summary.txt. Exit status: 0
# nothing failed, 1 a step failed, 3 there is no CUDA device.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/bin
results=$here/results
all=(tests server ipc restart memcheck initcheck synccheck racecheck bench peers cores)
steps=()
while [[ $# -gt 0 ]]; do
  if [[ $1 == --results && $# -gt 1 ]]; then results=$(mkdir -p "$2" && cd "$2" && pwd) && shift
  elif [[ " ${all[*]} " == *" $1 "* ]]; then steps+=("$1")
  else echo "run.sh: unknown argument $1, accepted: --results DIR, ${all[*]}" >&2 && exit 2
  fi
  shift
done
[[ ${#steps[@]} -gt 0 ]] || steps=("${all[@]}")
mkdir -p "$results"

# A sanitizer makes jobs slower; racecheck most of all.
declare -A sanitized_jobs=([memcheck]=400 [initcheck]=400 [synccheck]=400 [racecheck]=200)
sanitizer_seconds=150 peers_seconds=240
passed=0 failed=0 skipped=0
servers=()
cleanup() { [[ ${#servers[@]} == 0 ]] || kill "${servers[@]}" 2>/dev/null || true; }
trap cleanup EXIT

say() { printf '%s\n' "$*" | tee -a "$results/summary.txt"; }
pass() { passed=$((passed + 1)); say "PASS  $* ($((SECONDS - began)) s)"; }
fail() { failed=$((failed + 1)); say "FAIL  $* ($((SECONDS - began)) s)"; }
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

# start_server NAME OPTION...: starts a server with its output in server-NAME.log; sets `address` and
# `metrics`. The variables in the array `server_environment` are its own.
server_environment=()
start_server() {
  local log=$results/server-$1.log tries
  shift
  # Not through a function: the shell in between would take the signal that ends the server.
  env "LD_LIBRARY_PATH=$libraries" "${server_environment[@]}" "$bin/phasor-server" "$@" \
    --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 >"$log" 2>&1 &
  servers+=($!)
  for ((tries = 0; tries < 600; tries++)); do
    address=$(listener listeners "$log") metrics=$(listener metrics_listeners "$log")
    [[ -z $address || -z $metrics ]] || return 0
    kill -0 "${servers[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log"
  return 1
}
# listener FIELD LOG
listener() { sed -n "s/.*\"$1\":\[\"\(127\.0\.0\.1:[0-9]*\)\".*/\1/p" "$2" | head -1; }

# stop_servers: they must end well after SIGTERM.
stop_servers() {
  kill -TERM "${servers[@]}"
  local server rc=0
  for server in "${servers[@]}"; do wait "$server" || rc=$?; done # of several, wait tells the last one's status
  servers=()
  return $rc
}

# is_on_device METRICS_ADDRESS WHAT: whether the device computed, and failed nothing, by the server's counters.
is_on_device() {
  local page computed failures
  page=$(exec 3<>"/dev/tcp/${1%:*}/${1#*:}" && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3)
  echo "$page" >"$results/$2.metrics"
  computed=$(awk '/^phasor_items_computed_total.*"cuda"/ {print $2}' <<<"$page")
  failures=$(awk '/^phasor_device_fallbacks_total.*"device_failed"/ {print $2}' <<<"$page")
  [[ ${computed:-0} != 0 && $failures == 0 ]]
}

# both_servers COMMAND...: runs phasor on both, each result to BACKEND.npy, and says why they do not agree. Those of `cuda`
# must be computed there.
both_servers() {
  local backend said
  for backend in cuda cpu; do
    said=$(ours "$bin/phasor" "$@" --server "${at[$backend]}" --output "$results/$backend.npy" 2>&1) ||
      { echo "error on $backend: $said"; return 1; }
    [[ $said == *"backend $backend"* ]] || { echo "computed by another backend than $backend: $said"; return 1; }
  done
  cmp "$results/cuda.npy" "$results/cpu.npy" || return 1
}

step_server() {
  local address metrics backend case dtype why calls=0
  local -A at
  for backend in cuda cpu; do
    start_server $backend --backend=$backend || { fail "server: --backend=$backend did not start"; return; }
    at[$backend]=$address
    [[ $backend == cpu ]] || local counters=$metrics
  done
  grep -q '"event":"device ready"' "$results/server-cuda.log" || { fail "server: its log does not say when the device was ready"; return; }
  for case in rope-half-split rope-interleaved; do
    for dtype in f2 f4; do
      why=$(both_servers rope --preset $case --head-dim 128 --range 130000:130128 --input "$here/data/q.$dtype.npy") ||
        { fail "server: $case $dtype: $why"; return; }
      if cmp -s "$results/cuda.npy" "$here/data/q.$dtype.npy"; then fail "server: $case $dtype: not rotated"; return; fi
      calls=$((calls + 1))
    done
  done
  why=$(both_servers encode --preset transformer --dim 512 --range 0:4096) || { fail "server: encode: $why"; return; }
  rm -f "$results"/{cuda,cpu}.npy
  is_on_device "$counters" server || { fail "server: by its counters the device did not compute everything, see server.metrics"; return; }
  stop_servers || { fail "server: status $? after SIGTERM"; return; }
  pass "server: $calls rotations and an encoding of --backend=cuda have the bytes of --backend=cpu, and the device computed them; ready after $(sed -n 's/.*"device ready".*"seconds":\([0-9.]*\).*/\1/p' "$results/server-cuda.log") s"
}

# check_ipc NAME: whether the server's answers for exported memory are right; prints what is wrong. Status 4: not checked.
check_ipc() { ours "$bin/gpu_ipc" "$address" >"$results/$1.log" 2>&1; }

step_ipc() {
  local address metrics rc=0
  start_server ipc --backend=cuda --shared-memory || { fail "ipc: the server did not start"; return; }
  check_ipc ipc || rc=$?
  case $rc in
    0) ;;
    4) skip "ipc: NOT CHECKED, $(tail -1 "$results/ipc.log")"; stop_servers || true; return ;;
    *) fail "ipc: status $rc: $(tail -1 "$results/ipc.log")"; return ;;
  esac
  is_on_device "$metrics" ipc || { fail "ipc: by its counters the device failed, see ipc.metrics"; return; }
  stop_servers || { fail "ipc: status $? after SIGTERM"; return; }
  pass "ipc: $(tail -1 "$results/ipc.log")"
}

step_restart() {
  local address metrics rc=0 trigger=$results/trigger
  rm -f "$trigger"
  server_environment=("LD_PRELOAD=$here/lib/libgpu_provoke.so" "PHASOR_PROVOKE=$trigger")
  start_server lost --backend=cuda --shared-memory || { fail "restart: the server did not start"; return; }
  server_environment=()
  ours "$bin/gpu_ipc" "$address" "$trigger" >"$results/restart.log" 2>&1 || rc=$?
  rm -f "$trigger"
  case $rc in
    0) ;;
    4) skip "restart: NOT CHECKED, $(tail -1 "$results/restart.log")"; stop_servers || true; return ;;
    *) fail "restart: status $rc: $(tail -1 "$results/restart.log")"; return ;;
  esac
  wait "${servers[-1]}" || rc=$?
  servers=()
  [[ $rc == 75 ]] || { fail "restart: the server that lost its device ended with status $rc, see server-lost.log"; return; }
  start_server next --backend=cuda --shared-memory || { fail "restart: the next server did not start"; return; }
  check_ipc restart-next || { fail "restart: the next server: $(tail -1 "$results/restart-next.log")"; return; }
  stop_servers || { fail "restart: status $? after SIGTERM"; return; }
  pass "restart: $(tail -1 "$results/restart.log"); the server ended with 75, and the next one computed on the device"
}

# sanitize TOOL
sanitize() {
  local tool
  tool=$(command -v compute-sanitizer || find /usr/local/cuda*/bin/ -name compute-sanitizer 2>/dev/null | head -1) || true
  [[ -n $tool ]] || { skip "$1: NOT CHECKED, no compute-sanitizer on the path or in /usr/local/cuda*/bin"; return; }
  local rc=0 options=(--tool "$1" --error-exitcode 9)
  # A chunk comes back in one copy, with the gaps between its tensors. The tests compare what a kernel must write.
  [[ $1 != initcheck ]] || options+=(--check-api-memory-access no)
  PHASOR_REQUIRE_GPU=1 PHASOR_RANDOM_JOBS=${sanitized_jobs[$1]} \
    logged "$1" timeout $sanitizer_seconds "$tool" "${options[@]}" "$bin/cuda_driver_test" || rc=$?
  if grep -qiE 'device not supported|not supported on this (device|system)|failed to initialize' "$results/$1.log"; then
    skip "$1: NOT CHECKED, compute-sanitizer does not accept this device: $(grep -iE 'not supported|failed to init' "$results/$1.log" | head -1)"
  elif [[ $rc == 124 ]]; then
    fail "$1: not done after $sanitizer_seconds s, see $1.log"
  elif [[ $rc == 0 ]] && grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$results/$1.log"; then
    pass "$1: ${sanitized_jobs[$1]} jobs, $(grep SUMMARY "$results/$1.log" | tail -1)"
  else
    fail "$1: status $rc, $(grep SUMMARY "$results/$1.log" | tail -1), see $1.log"
  fi
}
step_memcheck() { sanitize memcheck; }
step_initcheck() { sanitize initcheck; }
step_synccheck() { sanitize synccheck; }
step_racecheck() { sanitize racecheck; }

step_bench() {
  if logged bench "$bin/bench_cuda" "$results/cuda.json"; then
    pass "bench: $(tail -1 "$results/bench.log"); see bench.log, cuda.json"
  else
    fail "bench: $(tail -1 "$results/bench.log"); see bench.log"
  fi
}

step_peers() {
  if ! command -v python3 >/dev/null || ! python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    skip "peers: NOT COMPARED, no python3 whose PyTorch sees the device"
    return
  fi
  local rc=0
  logged peers timeout $((peers_seconds + 60)) python3 "$here/peers/peers.py" "$here" "$results/cuda_peers.json" \
    --seconds $peers_seconds || rc=$?
  if [[ $rc == 0 ]]; then
    pass "peers: $(tail -1 "$results/peers.log"); see peers.log, cuda_peers.json"
  else
    fail "peers: status $rc, $(grep -E '^(FAIL|FATAL)' "$results/peers.log" | head -1); see peers.log; cuda_peers.json has what came before"
  fi
}

step_cores() {
  if logged cores ours "$bin/bench_cores" "$results/cores.json"; then
    pass "cores: $(tail -1 "$results/cores.log"); see cores.log, cores.json"
  else
    fail "cores: $(tail -1 "$results/cores.log"); see cores.log"
  fi
}

# --- all ------------------------------------------------------------------------------------------

archive() { tar -C "$(dirname "$results")" -czf "$results.tar.gz" "$(basename "$results")"; }

before=$(cat "$results/summary.txt" 2>/dev/null || true)
: >"$results/summary.txt"
say "phasor gpu-test of revision $(cat "$here/REVISION"), $(date --utc +%Y-%m-%dT%H:%M:%SZ)"
if ! card=$("$bin/bench_cuda" --card 2>"$results/card.log"); then
  say "FAIL  no CUDA device, nothing was tested: $(cat "$results/card.log")"
  archive
  exit 3
fi
say "card: $card"
# What other steps said of the same card and revision.
if [[ $before == *"revision $(cat "$here/REVISION"),"*"card: $card"* ]]; then
  grep -E '^(PASS|FAIL|SKIP)  ' <<<"$before" | grep -vE "^....  ($(IFS='|' && echo "${steps[*]}")): " |
    tee -a "$results/summary.txt" || true
fi
for step in "${steps[@]}"; do
  printf -- '--- %s\n' "$step"
  began=$SECONDS
  "step_$step"
  [[ ${#servers[@]} == 0 ]] || stop_servers || true
done
say "gpu-test: $passed passed, $failed failed, $skipped skipped"
archive
[[ $failed == 0 ]]
