#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trixie.sh COMMAND [ARGUMENT...]: runs a program of perf_analyzer's package in a Debian trixie,
# whose glibc it needs, with the network, /dev/shm and processes of this machine. Makes that Debian
# once, in build/trixie, from the mirror that apt uses here. Exit status 77, with the reason: this
# is not possible.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

perf_analyzer=perf-analyzer==2.60.0
# Its shared memory, system's too, opens CUDA's runtime, which needs no device.
runtime=nvidia-cuda-runtime==13.5.37
root=build/trixie

skip() { echo "SKIP: $*"; exit 77; }

make_root() {
  command -v debootstrap >/dev/null || skip "debootstrap is not installed: no Debian with a newer glibc"
  local mirror
  mirror=$(deploy/apt-mirror.sh)
  [[ -n $mirror ]] || skip "apt has no mirror of Debian here to make trixie from"
  rm -rf $root $root.new
  debootstrap --variant=minbase trixie $root.new "$mirror" >build/trixie.log 2>&1 ||
    skip "debootstrap trixie failed: $(tail -1 build/trixie.log)"
  local wheels=$root.new/wheels
  mkdir $wheels
  python3 -m venv $root.new/venv || skip "python3-venv is not installed"
  $root.new/venv/bin/pip download -q --disable-pip-version-check --no-deps --only-binary :all: \
    --platform manylinux_2_38_x86_64 --platform manylinux_2_17_x86_64 -d $wheels $perf_analyzer $runtime </dev/null ||
    skip "$perf_analyzer or $runtime cannot be downloaded (offline?)"
  for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" $root.new/opt; done
  rm -rf $wheels $root.new/venv $root.new/var/cache/apt
  chmod +x $root.new/opt/perf_analyzer/bin/perf_analyzer
  ln -s "$(cd $root.new/opt && echo nvidia/*/lib/libcudart.so.*)" $root.new/opt/libcudart.so
  echo "$perf_analyzer $runtime" >$root.new/complete
  mv $root.new $root
}

[[ $(id -u) == 0 ]] || skip "chroot into a Debian with a newer glibc needs root"
[[ $(cat $root/complete 2>/dev/null) == "$perf_analyzer $runtime" ]] || make_root
# The mounts are in a namespace of their own and end with the command.
# shellcheck disable=SC2016  # the inner shell expands these
exec unshare --mount --propagation private sh -c '
  root=$1 && shift && mount --rbind /dev "$root/dev" && mount --rbind /proc "$root/proc" &&
    exec chroot "$root" env LD_LIBRARY_PATH=/opt PATH=/opt/perf_analyzer/bin:/usr/bin "$@"' sh $root "$@"
