#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build-image.sh --target runtime|prebuilt --tag NAME [--cuda none|image|wheels]: builds the
# Dockerfile with docker or podman if an engine answers. Otherwise (root only) uses buildah in a
# chroot, over a base made by debootstrap. PHASOR_IMAGE_BASE names another base image.
# PHASOR_IMAGE_SOURCE is the address of the sources (default: git's origin). PHASOR_IMAGE_ENGINE
# forces docker, podman or buildah. PIP_CERT, pip's own variable, names a file of certificates that
# pip trusts in the build too. Exit status 77: nothing here can build images.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=runtime tag=phasor:latest cuda=none
while [[ $# -gt 0 ]]; do
  case $1 in
    --target) target=$2 ;;
    --tag) tag=$2 ;;
    --cuda) cuda=$2 ;;
    *) echo "build-image: unknown option $1" >&2; exit 1 ;;
  esac
  shift 2
done

version=$(sed -n 's/^project(phasor VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
# The time is that of the commit, so that the same sources give the same labels.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
source=${PHASOR_IMAGE_SOURCE:-$(git remote get-url origin 2>/dev/null || echo unknown)}
[[ $source == https://* && $source != *@* ]] || source=unknown # no paths of this machine, no passwords
build_args=(--target "$target" --tag "$tag" --file Dockerfile --build-arg "CUDA=$cuda"
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "SOURCE=$source"
  --build-arg "CREATED=$(date --utc --date "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" --build-arg "SOURCE_DATE_EPOCH=$epoch")

[[ -z ${PIP_CERT:-} ]] || build_args+=(--secret "id=certificates,src=$PIP_CERT")

skip() { echo "SKIP: $*" >&2; exit 77; }
say() { printf '==> %s\n' "$*" >&2; }

engine() {
  local name
  for name in docker podman; do
    if "$name" info >/dev/null 2>&1; then echo $name; return; fi
  done
  echo buildah
}

# A Debian 12 minbase without documentation except licences, like debian:bookworm-slim.
make_base() {
  local root=build/image/base mirror
  command -v debootstrap >/dev/null || skip "no container engine answers and debootstrap is not installed"
  mirror=$(deploy/apt-mirror.sh)
  [[ -n $mirror ]] || skip "apt has no bookworm mirror here to make a base image from"
  say "no container engine answers: making a Debian 12 base from $mirror"
  rm -rf $root && mkdir -p $root
  debootstrap --variant=minbase bookworm $root "$mirror" >build/image/debootstrap.log ||
    { tail -5 build/image/debootstrap.log >&2; skip "debootstrap failed"; }
  rm -rf $root/usr/share/{info,man,locale}/* $root/var/cache/apt/* $root/var/lib/apt/lists/*
  find $root/usr/share/doc -type f ! -name copyright -delete
  tar -C $root -cf build/image/base.tar .
  rm -rf $root
}

build_with_buildah() {
  command -v buildah >/dev/null || skip "no container engine answers and buildah is not installed"
  [[ $(id -u) == 0 ]] || skip "buildah with chroot isolation needs root here"
  mkdir -p build/image
  local debian=localhost/phasor-base:bookworm
  local base=${PHASOR_IMAGE_BASE:-$debian}
  if [[ $base == "$debian" || $target == runtime ]] &&
    ! deploy/buildah.sh inspect --type image $debian >/dev/null 2>&1; then
    make_base
    printf 'FROM scratch\nADD base.tar /\nCMD ["/bin/sh"]\n' |
      deploy/buildah.sh build --quiet --tag $debian --file - build/image >/dev/null
    rm build/image/base.tar
  fi
  say "building target $target with buildah, chroot isolation"
  # Docker's format, because OCI's has no HEALTHCHECK.
  deploy/buildah.sh build --pull-never --isolation chroot --format docker \
    --build-arg "BASE=$base" --build-arg "BUILD_BASE=$debian" "${build_args[@]}" .
}

case ${PHASOR_IMAGE_ENGINE:=$(engine)} in
  buildah) build_with_buildah ;;
  *)
    say "building target $target with $PHASOR_IMAGE_ENGINE"
    # Docker 20.10, Debian's, has BuildKit but does not use it by itself.
    DOCKER_BUILDKIT=1 "$PHASOR_IMAGE_ENGINE" build --build-arg "BASE=${PHASOR_IMAGE_BASE:-debian:bookworm-slim}" "${build_args[@]}" .
    ;;
esac
say "built $tag"
