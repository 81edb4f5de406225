#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# image_test.sh BUILD_DIR bare|bookworm|cuda: makes an image from the built binary, on a base with only
# the C library or on Debian; or, from the sources, the image with kernels for GPUs. Checks its size,
# user, labels and bill of materials, and that its server starts as `docker run` starts it, on a
# read-only root without privileges, answers on the CPU and drains. Exit status 77: nothing here can
# build images.
set -euo pipefail
build=$(realpath "$1")
kind=$2
base=localhost/phasor-base:${kind/cuda/bookworm}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

max_mib=20 # without kernels for GPUs and the run time of CUDA
patience_ms=120000 # only reached when something hangs
tag=phasor:test-$kind
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
measured() { echo "MEASURED $*"; } # `./dev accept` quotes it
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

milliseconds() { date +%s%3N; }

# --- what runs in the image -----------------------------------------------------------------------

confined() { python3 tests/deploy/confined.py "$root" "$@"; }

# Starts what `docker run IMAGE` starts: the image's entry point with its variables, in a network of its own. Waits until
# it says SERVING; sets `server` and `took_ms`, all overheads included.
start_server() {
  local started entry variables
  mapfile -t entry < <(inspect '{{range .OCIv1.Config.Entrypoint}}{{println .}}{{end}}' | grep .)
  mapfile -t variables < <(inspect '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' | grep .)
  started=$(milliseconds)
  env -i "${variables[@]}" /usr/bin/python3 tests/deploy/confined.py --net "$root" "${entry[@]}" >"$work/log" 2>&1 &
  server=$!
  until healthy; do
    kill -0 $server 2>/dev/null || fail "the server ended"
    (($(milliseconds) - started < patience_ms)) || fail "not SERVING within $patience_ms ms"
  done
  took_ms=$(($(milliseconds) - started))
}

# Runs a program of the image in the network of its server.
beside() { nsenter --target $server --net python3 tests/deploy/confined.py "$root" "$@"; }

# The image's own health check.
mapfile -t health_check < <(sed -n 's/^  CMD \(\[.*\]\)$/\1/p' Dockerfile |
  python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")')
healthy() { [[ ! /proc/$server/ns/net -ef /proc/self/ns/net ]] && beside "${health_check[@]}" >/dev/null 2>&1; }

stop_server() {
  kill -TERM $server
  wait $server || fail "SIGTERM: exit status $?"
  server=
}

inspect() { deploy/buildah.sh inspect --type image --format "$1" "$tag"; }
label() { inspect "{{index .OCIv1.Config.Labels \"org.opencontainers.image.$1\"}}"; }

check_configuration() {
  [[ $(inspect '{{.OCIv1.Config.User}}') == 65532:65532 ]] || fail "the image does not run as uid 65532"
  [[ $(inspect '{{.OCIv1.Config.Entrypoint}}') == *phasor-server* ]] || fail "the entry point is not phasor-server"
  [[ $(label licenses) == Apache-2.0 ]] || fail "the image has no licence label"
  [[ $(label base.name) == "$base" ]] || fail "the image names '$(label base.name)' as its base"
  [[ $(label created) =~ ^20[0-9-]+T[0-9:]+Z$ && $(label created) != 1970* ]] || fail "created '$(label created)'"
  local name
  for name in title description version revision source url documentation vendor; do
    [[ -n $(label $name) ]] || fail "the image has no label $name"
  done
  [[ $(inspect '{{.Docker.Config.Healthcheck}}') == *phasor*health* ]] || fail "the image has no health check"
  local listen
  listen=$(inspect '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' | sed -n 's/^PHASOR_LISTEN=//p')
  [[ $listen == 0.0.0.0:50051 ]] || fail "the image listens on '$listen', not on 0.0.0.0:50051"
  cmp deploy/envoy/phasor.pb "$root/usr/share/phasor/phasor.pb" || fail "the image has no descriptors of its services"
  local documents=$root/usr/share/doc/phasor
  grep -q "$(sha256sum <"$root/usr/local/bin/phasor" | cut -d' ' -f1)" "$documents/sbom.spdx.json" ||
    fail "the bill of materials is of another binary"
  [[ -s $documents/LICENSE && -s $documents/copyright/grpc.gz ]] || fail "the image lacks licences"
  local cuda=
  ! grep -q '"cuda-cudart"' "$documents/sbom.spdx.json" || cuda=yes
  [[ $cuda == "${kernels:+yes}" ]] || fail "kernels for GPUs: ${kernels:-none}, CUDA in the bill of materials: ${cuda:-no}"
  pass "entry point, user, address, labels, health check, bill of materials"
}

# What the kernel says of the server: else a test of a strict container shows nothing.
check_confinement() {
  grep -qP '^Uid:(\t65532){4}$' "$1/status" || fail "the server does not run as uid 65532"
  [[ $(grep -cP '^Cap(Prm|Eff|Bnd|Amb):\t0+$' "$1/status") == 4 ]] || fail "the server has capabilities"
  grep -qP '^NoNewPrivs:\t1$' "$1/status" || fail "the server could gain privileges"
  awk '$5 == "/" {options = $6} END {exit options !~ /^ro(,|$)/}' "$1/mountinfo" || fail "the root is writable"
}

check_running() {
  if confined /bin/touch /tmp/x 2>/dev/null; then fail "the root is writable: the test shows nothing"; fi
  start_server
  local encoded
  encoded=$(beside /usr/local/bin/phasor encode --server 127.0.0.1:50051 \
    --preset timestep-sin-cos --dim 128 --positions 10) || fail "encode failed"
  [[ $encoded == *-0.54402*"backend cpu"* ]] || fail "sin(10) of the CPU is missing in: $encoded"
  check_confinement "/proc/$server"
  measured "SERVING $took_ms ms after its start"
  pass "answers, read-only, as uid 65532, without capabilities"
  stop_server
  pass "ends with status 0 on SIGTERM"
}

# A base with what the binary's loader asks for and nothing else: no shell, no /etc, no package manager.
make_bare_base() {
  mkdir "$work/bare"
  local library
  ldd $binary | awk '$2 == "=>" {print $3} $1 ~ "^/" {print $1}' | while read -r library; do
    [[ -e build/image/stage/usr/local/lib/${library##*/} ]] || install -D "$(realpath "$library")" "$work/bare$library"
  done
  # What docs/images.md asks of a base.
  [[ $(find "$work/bare" -type f -printf '%f\n' | sort | tr '\n' ' ') == "ld-linux-x86-64.so.2 libc.so.6 libm.so.6 " ]] ||
    fail "the base needs $(find "$work/bare" -type f)"
  printf 'FROM scratch\nCOPY bare /\n' |
    deploy/buildah.sh build --quiet --tag localhost/phasor-base:bare --file - "$work" >/dev/null
}

# check_size ROOT: the size of what the image adds to its base, and what it is about. Sets `kernels`, their size in hex.
check_size() {
  local binary=$1/usr/local/bin/phasor kib cpu_kib
  kib=$(cd "$1" && du -sck usr/local usr/share/phasor usr/share/doc/phasor | tail -n 1 | cut -f1)
  kernels=$(readelf -SW "$binary" | awk '{for (i = 1; i < NF; i++) if ($i == ".nv_fatbin") print $(i + 4)}')
  cpu_kib=$kib
  if [[ -n $kernels ]]; then
    ((kib <= 40 * 1024)) || fail "$kib KiB over the base, at most 40 MiB with kernels for GPUs"
    # What the image without them would be, about, so that it does not grow unseen where there is always a compiler. The run
    # time of CUDA and the drivers take 690 KiB, the kernels' code for the host 230 and the rest of the backend 160.
    cpu_kib=$((kib - 16#$kernels / 1024 - 1080))
  fi
  ((cpu_kib <= max_mib * 1024)) || fail "$cpu_kib KiB over the base, at most $max_mib MiB without CUDA"
  measured "$kib KiB over the base: the binary $(du -k "$binary" | cut -f1), kernels for GPUs $((16#${kernels:-0} / 1024)) of that"
  readelf -d "$binary" | grep -qE "\(RPATH\) .*\[/usr/local/lib\]" || fail "the binary does not look for its libraries in /usr/local/lib"
}

# --- the test -------------------------------------------------------------------------------------

if [[ $kind == cuda ]]; then
  python3 -m pip download -q --no-deps -d "$work" "$(grep crt deploy/cuda-wheels.txt)" </dev/null >"$work/log" 2>&1 ||
    skip "no CUDA compiler from PyPI: needs a machine that reaches it"
  PHASOR_IMAGE_ENGINE=buildah deploy/build-image.sh --target runtime --tag "$tag" --cuda wheels
else
  deploy/stage-image.sh "$build" build/image/stage
  binary=build/image/stage/usr/local/bin/phasor
  check_size build/image/stage
  [[ $kind != bare ]] || make_bare_base
  PHASOR_IMAGE_BASE=$base PHASOR_IMAGE_ENGINE=buildah deploy/build-image.sh --target prebuilt --tag "$tag"
fi
container=$(deploy/buildah.sh from --pull-never "$tag")
root=$(deploy/buildah.sh mount "$container")
if [[ $kind == cuda ]]; then
  check_size "$root"
  [[ -n $kernels ]] || fail "the image has no kernels for GPUs"
fi
check_configuration
check_running
