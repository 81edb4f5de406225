#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# versions.sh BUILD [VERSION...]: `pip install .` with other versions of Python (3.10, 3.11, 3.12 and 3.13 unless some are
# named), as users do, and the tests of the package with each; the fake GPU is that of BUILD. Versions that build/.venv has,
# and those that are not installed, are left out and named. Interpreters come from the PATH or pyenv. Exit status 77: there
# is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

release=$(realpath "$1")
shift
versions=("$@")
[[ ${#versions[@]} -gt 0 ]] || versions=(3.10 3.11 3.12 3.13)

# The interpreter of a version, with its headers.
interpreter_of() {
  local python
  for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$python" -c 'import os, sys, sysconfig
os.stat(sysconfig.get_path("include") + "/Python.h")
sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$1" 2>/dev/null; then
      echo "$python"
      return
    fi
  done
}

tested=() failed=() missing=()
for version in "${versions[@]}"; do
  if build/.venv/bin/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$version"; then continue; fi
  python=$(interpreter_of "$version")
  if [[ -z $python ]]; then
    missing+=("$version")
    continue
  fi
  venv=build/python-$version
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -q ml_dtypes mpmath numpy pytest . </dev/null # the newest of each that this Python has
  if PHASOR_FAKE_GPU=$release/tests/client/python PYTHONDONTWRITEBYTECODE=1 \
    "$venv/bin/python" -m pytest -c tests/client/python/pytest.ini tests/client/python; then
    tested+=("$version")
  else
    failed+=("$version")
  fi
done
echo "passed: ${tested[*]:-none}; failed: ${failed[*]:-none}; not installed here: ${missing[*]:-none}"
[[ ${#failed[@]} == 0 ]] || exit 1
[[ ${#tested[@]} -gt 0 ]] || { echo "SKIP: no other Python is installed here"; exit 77; }
