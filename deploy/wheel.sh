#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh OUT: makes the wheel of the Python package, with both programs and the libraries that they
# need, with the tools of build/.venv. The build folder is kept, so a second run is short. Prints the
# wheel's path. Exit status 77: the tools are not installed.
set -eu
cd "$(dirname "$0")/.."
out=$(realpath -m "$1")
PATH="$PWD/build/.venv/bin:$PATH"
python=$PWD/build/.venv/bin/python
"$python" -c 'import nanobind, scikit_build_core, auditwheel' 2>/dev/null ||
  { echo "SKIP: client/python/requirements.txt is not installed; ./dev test installs it" >&2; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip wheel -q --no-deps --no-build-isolation -w "$work" . >&2
"$python" -m auditwheel repair -w "$out" "$work"/*.whl >&2
for wheel in "$work"/*.whl; do ls "$out/$(basename "$wheel" | cut -d- -f1,2)"-*.whl; done
