#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# image_test.sh BUILD_DIR: makes an image from the built binary and checks what the image promises: size, user, labels,
# and that its server answers on a read-only root without privileges. Exit status 77: nothing here can build images.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

max_mib=20 # 40 with kernels for GPUs
tag=phasor:test
work=$(mktemp -d)
container=
root= # the image's root filesystem, mounted
server=

fail() {
  echo "FAIL: $*" >&2
  [[ ! -s $work/log ]] || sed 's/^/  server: /' "$work/log" >&2
  exit 1
}
skip() { echo "SKIP: $*" >&2; exit 77; }
pass() { echo "PASS: $*"; }
cleanup() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  [[ -z $container ]] || deploy/buildah.sh rm "$container" >/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

# buildah serves every machine: it needs no engine, and engines run the images that it makes.
command -v buildah >/dev/null || skip "buildah is not installed"
[[ $(id -u) == 0 ]] || skip "building with chroot isolation needs root"
unshare --mount true 2>/dev/null || skip "this machine forbids mount namespaces"

deploy/stage-image.sh "$build" build/image/stage
PHASOR_IMAGE_ENGINE=buildah deploy/build-image.sh --target prebuilt --tag $tag
container=$(deploy/buildah.sh from --pull-never $tag)
root=$(deploy/buildah.sh mount "$container")

inspect() { deploy/buildah.sh inspect --type image --format "$1" $tag; }
[[ $(inspect '{{.OCIv1.Config.User}}') == 65532:65532 ]] || fail "the image does not run as uid 65532"
[[ $(inspect '{{.OCIv1.Config.Entrypoint}}') == *phasor-server* ]] || fail "the entry point is not phasor-server"
[[ $(inspect '{{index .OCIv1.Config.Labels "org.opencontainers.image.licenses"}}') == Apache-2.0 ]] ||
  fail "the image has no licence label"
listen=$(inspect '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' | sed -n 's/^PHASOR_LISTEN=//p')
[[ $listen == 0.0.0.0:50051 ]] || fail "the image listens on '$listen', not on 0.0.0.0:50051"
pass "entry point, user, address and labels"

if readelf -SW build/image/stage/usr/local/bin/phasor | grep -q nv_fatbin; then max_mib=40; fi
kib=$(du -sk build/image/stage | cut -f1)
((kib <= max_mib * 1024)) || fail "$kib KiB over the base, at most $max_mib MiB"
pass "$kib KiB over the base, at most $max_mib MiB"

# The image's root bound read-only, uid 65532, no capability and nothing to gain one with. One process, by `exec`.
# shellcheck disable=SC2016  # expanded inside
confined=(unshare --mount sh -ec '
  root=$1 && shift
  mount --bind "$root" "$root"
  mount --bind /proc "$root/proc"
  mount -o remount,ro,bind "$root"
  exec chroot "$root" setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set -all "$@"'
  sh "$root")
if "${confined[@]}" touch /tmp/x 2>/dev/null; then fail "the root is writable: the test shows nothing"; fi

"${confined[@]}" /usr/local/bin/phasor-server --listen 127.0.0.1:0 >"$work/log" 2>&1 &
server=$!
address=
for _ in $(seq 100); do
  address=$(grep -oE '127\.0\.0\.1:[1-9][0-9]*' "$work/log" | head -1) && break
  kill -0 $server 2>/dev/null || fail "the server ended"
  sleep 0.1
done
[[ -n $address ]] || fail "the server told no address within 10 s"

"${confined[@]}" /usr/local/bin/phasor health --server "$address" || fail "not healthy"
encoded=$("${confined[@]}" /usr/local/bin/phasor encode --server "$address" \
  --preset timestep-sin-cos --dim 128 --positions 10) || fail "encode failed"
[[ $encoded == *-0.54402* ]] || fail "sin(10) is missing in: $encoded"
pass "answers on a read-only root, as uid 65532, without capabilities"

kill -TERM $server
wait $server || fail "SIGTERM: exit status $?"
server=
pass "ends with status 0 on SIGTERM"
