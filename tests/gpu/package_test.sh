#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package_test.sh BUILD_DIR: makes the package of ./dev gpu-test and runs it on a Debian without our
# libraries. Everything must load, what needs no GPU must work, and the rest must fail at once with
# "no CUDA device" and its exit status. Exit status 77: skipped; the reason is printed.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAIL: $*" >&2; exit 1; }
skip() { echo "SKIP: $*" >&2; exit 77; }
pass() { echo "PASS: $*"; }

[[ $(id -u) == 0 ]] || skip "chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
unshare --mount true 2>/dev/null || skip "this machine forbids mount namespaces"
ls /dev/nvidia[0-9]* >/dev/null 2>&1 && skip "this machine has a device: ./dev gpu-test shows more"
mirror=$(deploy/apt-mirror.sh)
[[ -n $mirror ]] || skip "apt has no bookworm mirror here"

base=build/gpu-test-debian.tar
if [[ ! -f $base ]]; then
  debootstrap --variant=minbase bookworm "$work/base" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -3 "$work/debootstrap.log" >&2; skip "debootstrap failed"; }
  tar -C "$work/base" -cf "$base.new" . && mv "$base.new" "$base" && rm -rf "$work/base"
fi
PHASOR_WITHOUT_PEERS=1 tests/gpu/package.sh "$build" "$work"
mkdir "$work/root"
tar -C "$work/root" -xf "$base"
tar -C "$work/root/root" -xzf "$work/phasor-gpu-test.tar.gz"
inside() { unshare --mount --pid --fork --mount-proc="$work/root/proc" chroot "$work/root" "$@"; }
there=/root/phasor-gpu-test

# Nothing of what the build machine has, and only the C library outside the package.
if inside sh -c 'ls /usr/include/grpcpp /usr/lib/x86_64-linux-gnu/libabsl* /usr/lib/x86_64-linux-gnu/libcuda*' >/dev/null 2>&1; then
  fail "the Debian has our libraries: the test shows nothing"
fi
for program in cuda_driver_test bench_cuda bench_cores gpu_ipc phasor; do
  libraries=$(inside env LD_LIBRARY_PATH=$there/lib ldd $there/bin/$program)
  if grep -q "not found" <<<"$libraries"; then fail "$program lacks: $libraries"; fi
  others=$(awk '$2 == "=>" {print $3} $1 ~ "^/" {print $1}' <<<"$libraries" |
    grep -Ev "^$there/lib/|/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*)\.so" || true)
  [[ -z $others ]] || fail "$program takes from outside the package: $others"
done
for program in cuda_driver_test bench_cuda gpu_ipc; do
  if inside ldd $there/bin/$program | grep -q "$there\|libstdc++"; then fail "$program needs more than the C library"; fi
done
pass "the programs need the C library and what is in the package"

inside $there/bin/bench_cuda --quick --dry >"$work/dry.log" 2>&1 || fail "bench_cuda --dry: $(tail -3 "$work/dry.log")"
pass "bench_cuda --dry: $(tail -1 "$work/dry.log")"
inside env LD_LIBRARY_PATH=$there/lib $there/bin/phasor rope --preset rope-half-split --head-dim 128 --range 130000:130128 \
  --input $there/data/q.f4.npy --output /root/rotated.npy >/dev/null || fail "phasor does not rotate"
[[ $(stat -c %s "$work/root/root/rotated.npy") == $(stat -c %s "$work/root$there/data/q.f4.npy") ]] || fail "another size"
pass "phasor rotates there"

# expect STATUS TEXT COMMAND...
expect() {
  local status=$1 text=$2 rc=0
  shift 2
  inside env LD_LIBRARY_PATH=$there/lib "$@" >"$work/said" 2>&1 || rc=$?
  [[ $rc == "$status" ]] || fail "$*: status $rc, not $status: $(tail -3 "$work/said")"
  grep -q "$text" "$work/said" || fail "$*: says '$(tail -3 "$work/said")', not '$text'"
  pass "$1: status $rc, $(grep -m1 "$text" "$work/said")"
}
expect 3 "FAIL  no CUDA device, nothing was tested" $there/run.sh
expect 3 "no CUDA device" $there/bin/bench_cuda
expect 1 "no CUDA device" env PHASOR_REQUIRE_GPU=1 $there/bin/cuda_driver_test
expect 1 "gpu_ipc: " $there/bin/gpu_ipc unix:/nobody
expect 1 "no CUDA device" $there/bin/phasor-server --backend=cuda --listen 127.0.0.1:0
expect 1 "no CUDA device" env LD_PRELOAD=$there/lib/libgpu_provoke.so $there/bin/phasor-server --backend=cuda --listen 127.0.0.1:0
expect 2 "unknown argument" $there/run.sh --frobnicate

# The script's own logic, with programs that take the host for a device: first they fail, and the script must fail with them.
bin=$work/root$there/bin
mkdir "$work/real"
mv "$bin"/{bench_cuda,bench_cores,phasor-server} "$work/real/"
# program NAME: its text from standard input.
program() { cat >"$1" && chmod +x "$1"; }
program "$bin/bench_cuda" <<'EOF'
#!/bin/sh
[ "$1" = --card ] && echo "a card that is none" && exit 0
exit 1
EOF
program "$bin/phasor-server" <<'EOF'
#!/bin/sh
exit 1
EOF
cp "$bin/phasor-server" "$bin/bench_cores"
rc=0
inside $there/run.sh tests server ipc restart memcheck bench peers cores >"$work/said" 2>&1 || rc=$?
[[ $rc == 1 ]] || fail "run.sh with programs that fail: status $rc"
for line in "FAIL  tests" "FAIL  server" "FAIL  ipc" "FAIL  restart" "SKIP  memcheck: NOT CHECKED" "FAIL  bench" \
  "SKIP  peers: NOT COMPARED" "FAIL  cores" "0 passed, 6 failed, 2 skipped"; do
  grep -q "$line" "$work/said" || fail "run.sh with programs that fail does not say '$line': $(tail -8 "$work/said")"
done
pass "run.sh fails when its programs do"

# Then they pass, but for `server`: the one of --backend=cuda is one of the CPU, which the answers say.
mv "$work/real/bench_cuda" "$bin/real_bench"
mv "$work/real/bench_cores" "$bin/real_cores"
program "$bin/bench_cores" <<'EOF'
#!/bin/sh
exec "${0%/*}/real_cores" "$@" --quick
EOF
program "$bin/bench_cuda" <<'EOF'
#!/bin/sh
[ "$1" = --card ] && echo "a card that is none" && exit 0
exec "${0%/*}/real_bench" "$@" --quick --dry
EOF
mkdir "$bin/real" && ln -s ../phasor "$bin/real/phasor-server"
program "$bin/phasor-server" <<'EOF'
#!/bin/sh
[ "$1" = --backend=cuda ] && echo '{"event":"device ready","device":"none","seconds":0}'
shift
exec "${0%/*}/real/phasor-server" --backend=cpu "$@"
EOF
program "$bin/gpu_ipc" <<'EOF'
#!/bin/sh
[ $# = 1 ] && echo "the bytes of $1" && exit 0
echo "the device was not lost"
exit 4
EOF
program "$bin/cuda_driver_test" <<'EOF'
#!/bin/sh
echo "[  PASSED  ] of $PHASOR_REQUIRE_GPU, ${PHASOR_RANDOM_JOBS:-all} jobs"
EOF
program "$work/root/usr/local/bin/compute-sanitizer" <<'EOF'
#!/bin/sh
[ "$2" = racecheck ] && echo "Device not supported. Please refer to the documentation." && exit 1
while [ "${1#--}" != "$1" ]; do shift 2; done
"$@" && echo "========= ERROR SUMMARY: 0 errors"
EOF
rc=0
inside $there/run.sh >"$work/said" 2>&1 || rc=$?
[[ $rc == 1 ]] || fail "run.sh with a server that does not use the device: status $rc: $(tail -8 "$work/said")"
summary=$work/root$there/results/summary.txt
for line in "card: a card that is none" "PASS  tests: \[  PASSED  \] of 1, all jobs" "FAIL  server: .* computed by another backend than cuda" \
  "FAIL  ipc: by its counters" "SKIP  restart: NOT CHECKED, the device was not lost" "PASS  memcheck: 400 jobs, .* 0 errors" \
  "PASS  initcheck" "PASS  synccheck" "SKIP  racecheck: NOT CHECKED" "PASS  bench" "SKIP  peers: NOT COMPARED" \
  "PASS  cores" "6 passed, 2 failed, 3 skipped"; do
  grep -q "$line" "$summary" || fail "run.sh with programs that pass does not say '$line': $(cat "$summary")"
done
[[ -s $work/root$there/results/cuda.json ]] || fail "run.sh left no cuda.json"
grep -q '^results/cuda.json$' <<<"$(tar -tzf "$work/root$there/results.tar.gz")" || fail "the archive lacks cuda.json"
pass "run.sh passes when they do, says what was not checked, and fails a server whose device does not compute"

# A later run keeps what others said.
inside $there/run.sh bench >"$work/said" 2>&1 || fail "run.sh bench: $(tail -3 "$work/said")"
for line in "PASS  tests" "FAIL  server" "PASS  bench"; do
  [[ $(grep -c "^$line: " "$summary") == 1 ]] || fail "after another run the summary has not one '$line': $(cat "$summary")"
done
pass "run.sh keeps the lines of steps that ran before"
