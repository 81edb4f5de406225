#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fresh.sh [COMMAND...]: makes a bare Debian 12 with debootstrap in build/fresh, clones HEAD into it
# and runs COMMAND there without a terminal (default: ./dev demo && .ci/run). Exit status 77: not
# possible here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD/build/fresh

skip() { echo "SKIP: $*" >&2; exit 77; }
[[ $(id -u) == 0 ]] || skip "needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=$(deploy/apt-mirror.sh)
[[ -n $mirror ]] || skip "apt has no bookworm mirror here"

rm -rf "$root"
mkdir -p build
debootstrap --variant=minbase --include=ca-certificates,git bookworm "$root" "$mirror" >build/fresh.log
cp /etc/resolv.conf /etc/hosts "$root/etc/"
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do # what reaches registries from this network
  [[ ! -f $file ]] || install -D -m 644 "$file" "$root$file"
done
git clone -q --no-hardlinks . "$root/phasor"

# A mount namespace of its own: nothing to clean up.
# shellcheck disable=SC2016  # expanded inside
exec unshare --mount sh -ec '
  root=$1 command=$2
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc" || mount --rbind /proc "$root/proc"
  mount --rbind /dev "$root/dev"
  exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
    sh -c "cd /phasor && $command" </dev/null' sh "$root" "${*:-./dev demo && .ci/run}"
