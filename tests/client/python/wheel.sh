#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheel of the Python package from its source distribution, installs it into an empty
# environment outside the repository, and runs the tests there, beside grpcio. Exit status 77, which
# CTest shows as skipped: build/.venv has no pip to make it with, or PyPI or Debian's sources cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

root=$PWD
python=$root/build/.venv/bin/python
out=build/wheel/out
skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "$*"; exit 1; }

rm -rf "$out"
wheel=$(deploy/wheel.sh "$out")
ls -l "$out"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check "$wheel" </dev/null || skip "numpy cannot be installed (offline?)"
mkdir -p "$folder/tests/client" "$folder/client/python"
cp -r tests/client/python "$folder/tests/client"
cp -r client/python/examples "$folder/client/python"
cd "$folder"

echo "first answer:"
time venv/bin/python -c 'import phasor; print(phasor.encode({"preset": "timestep-sin-cos", "dim": 4}, 10), phasor.__file__)'
venv/bin/phasor encode --preset transformer --dim 4 --positions 2
venv/bin/phasor-server --version
for package in abseil c-ares grpc nanobind openssl protobuf re2 zlib; do
  ls venv/lib/python3*/site-packages/phasor_rope-*.dist-info/licenses/others/"$package.txt" || fail "no licence of $package"
done

# Other libraries of a process see the module's entry point only, and it needs the C and C++ libraries only.
module=$(venv/bin/python -c 'import phasor._native as n; print(n.__file__)')
ls -l "$module"
exported=$(nm -D --defined-only "$module" | awk '{print $3}')
[[ $exported == PyInit__native ]] || fail "the module exports more than its entry point: $exported"
others=$(readelf -d "$module" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
  grep -Ev '^(libstdc\+\+\.so\.6|libgcc_s\.so\.1|libm\.so\.6|libc\.so\.6|ld-linux-x86-64\.so\.2)$' || true)
[[ -z $others ]] || fail "the module needs $others"
venv/bin/python -c 'import numpy, time
started = time.perf_counter()
import phasor._native
print(f"import: {(time.perf_counter() - started) * 1000:.1f} ms after numpy")'

grep -E '^(grpcio|pytest|ml_dtypes|mpmath)==' "$root/client/python/requirements.txt" >requirements.txt
venv/bin/pip install -q --disable-pip-version-check -r requirements.txt </dev/null || skip "pytest cannot be installed (offline?)"
export PYTHONDONTWRITEBYTECODE=1
rm tests/client/python/docs_test.py # reads the pages of the repository
venv/bin/python -m pytest -c tests/client/python/pytest.ini tests/client/python
