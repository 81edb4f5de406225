#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh OUT [--shared]: makes the wheel of the Python package from its source distribution, which it also leaves in
# OUT, with the tools of build/.venv. The module and both programs contain gRPC, protobuf, Abseil and OpenSSL
# (deploy/pic-libraries.sh, kept in build/pic). --shared: the wheel carries Debian's shared libraries instead, which needs
# no sources of Debian. Prints the wheel's path. Exit status 77: the tools are not installed, or Debian's sources cannot
# be had.
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
PATH="$PWD/build/.venv/bin:$PATH"
python=$PWD/build/.venv/bin/python
"$python" -c 'import nanobind, scikit_build_core, auditwheel' 2>/dev/null ||
  { echo "SKIP: client/python/requirements.txt is not installed; ./dev test installs it" >&2; exit 77; }
case ${2:-} in
  '') libraries=$PWD/build/pic && deploy/pic-libraries.sh "$libraries" ;;
  --shared) libraries= ;;
  *) echo "wheel.sh: unknown option $2, accepted: --shared" >&2 && exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
source=$out/$("$python" -c 'import sys, scikit_build_core.build as build; print(build.build_sdist(sys.argv[1]))' "$out" | tail -n 1)
# ccache knows the sources again wherever pip unpacks them.
TMPDIR=$work CCACHE_BASEDIR=$work "$python" -m pip wheel -q --no-deps --no-build-isolation \
  --config-settings=cmake.define.PHASOR_PIC_LIBRARIES="$libraries" -w "$work" "$source" >&2
"$python" -m auditwheel repair -w "$out" "$work"/*.whl >&2
for wheel in "$work"/*.whl; do ls "$out/$(basename "$wheel" | cut -d- -f1,2,3)"-*.whl; done
