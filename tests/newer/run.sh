#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.sh [COMMAND]: compiles and tests Phasor with a current gRPC, protobuf and Abseil: those of
# Debian's experimental suite, in a chroot of Debian unstable under build/newer. COMMAND is a command
# line that runs there, in the repository, instead of the build and the tests. The chroot has a
# build/ of its own. Needs root rights, debootstrap, unshare and 6 GB of disk.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD/build/newer/root
mirror=${PHASOR_DEBIAN_MIRROR:-$(deploy/apt-mirror.sh)}
mirror=${mirror:-http://deb.debian.org/debian}

# Runs a command line in the chroot. The mounts go with the process.
inside() {
  # shellcheck disable=SC2016  # expanded by the shell inside
  unshare --mount bash -euc '
    root=$1 repository=$2
    mkdir -p "$root/phasor" "$root/build" "$root/ccache"
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    mount --bind "$repository" "$root/phasor"
    mount --bind "$root/build" "$root/phasor/build"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      CCACHE_DIR=/ccache DEBIAN_FRONTEND=noninteractive bash -euc "cd /phasor; $3"
  ' bash "$root" "$PWD" "$1"
}

# Debian packages of gRPC and protobuf come from experimental, everything else, Abseil and OpenSSL
# too, from unstable: the versions that gRPC was compiled with.
make_chroot() {
  debootstrap --variant=minbase --include=ca-certificates sid "$root" "$mirror"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo "deb $mirror experimental main" >"$root/etc/apt/sources.list.d/experimental.list"
  printf 'Package: src:grpc src:protobuf\nPin: release a=experimental\nPin-Priority: 990\n' \
    >"$root/etc/apt/preferences.d/newer"
  # A mirror that keeps one day for good is past the date up to which its lists are valid.
  echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/newer"
  # shellcheck disable=SC2016  # expanded by the shell inside
  inside 'apt-get update -qq
    apt-get install -qq -y --no-install-recommends $(grep -hv "^#" deploy/apt-build-packages.txt) \
      curl openssl procps python3-dev python3-venv </dev/null'
  touch "$root.complete"
}

if [[ ! -f $root.complete ]]; then
  rm -rf --one-file-system "$root"
  mkdir -p "$root"
  make_chroot
fi
if [[ $# -gt 0 ]]; then
  inside "$*"
  exit
fi
# Rules about the source, pages and packages do not depend on the version of gRPC.
inside "cmake --preset release -DPHASOR_PYTHON=OFF -DPHASOR_STATIC=OFF
  cmake --build --preset release --parallel $(nproc)
  ctest --preset release --output-on-failure -O build/tests.txt -LE 'slow|full|lint|docs|deploy' -j $(nproc)"
