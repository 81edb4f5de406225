#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheel of the Python package, installs it into an empty environment outside the
# repository, and runs the tests there. Exit status 77, which CTest shows as skipped: build/.venv has
# no pip to make it with, or PyPI cannot be reached.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

root=$PWD
python=$root/build/.venv/bin/python
out=build/wheel/out
skip() { echo "SKIP: $*"; exit 77; }

rm -rf "$out"
wheel=$(deploy/wheel.sh "$out")
ls -l "$wheel"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check "$wheel" </dev/null || skip "numpy cannot be installed (offline?)"
cp -r tests/client/python "$folder/tests"
cd "$folder"

echo "first answer:"
time venv/bin/python -c 'import phasor; print(phasor.encode({"preset": "timestep-sin-cos", "dim": 4}, 10), phasor.__file__)'
venv/bin/phasor encode --preset transformer --dim 4 --positions 2
venv/bin/phasor-server --version

grep -E '^(pytest|ml_dtypes|mpmath)==' "$root/client/python/requirements.txt" >requirements.txt
venv/bin/pip install -q --disable-pip-version-check -r requirements.txt </dev/null || skip "pytest cannot be installed (offline?)"
export PYTHONDONTWRITEBYTECODE=1
rm -f tests/docs_test.py # reads the pages of the repository
venv/bin/python -m pytest -c tests/pytest.ini --rootdir tests tests

# Only the module's entry point may be visible to other libraries of a process.
module=$(venv/bin/python -c 'import phasor._native as n; print(n.__file__)')
exported=$(nm -D --defined-only "$module" | awk '$2 == "T" {print $3}')
[[ $exported == PyInit__native ]] || { echo "the module exports more than its entry point: $exported"; exit 1; }
