#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_jax.sh BUILD: runs the tests of arrays of jax in build/.venv-jax, which it makes (300 MB). Exit status 77, which CTest
# shows as skipped: jax cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

venv=build/.venv-jax
wanted=$(grep -E '^(jax|ml_dtypes|mpmath|numpy|pytest)==' client/python/requirements.txt tests/client/python/jax.txt --no-filename)
if [[ $wanted != "$(cat $venv/wanted 2>/dev/null)" ]]; then
  rm -rf $venv
  build/.venv/bin/python -m venv $venv
  # shellcheck disable=SC2086  # one argument per package
  $venv/bin/pip install -q --disable-pip-version-check $wanted </dev/null || { echo "SKIP: jax cannot be installed (offline?)"; exit 77; }
  echo "$wanted" >$venv/wanted
fi
export JAX_PLATFORMS=cpu PHASOR_PYTHON_EXECUTABLE=$venv/bin/python
exec tests/client/python/run.sh "$1" -m pytest -c tests/client/python/pytest.ini \
  tests/client/python/jax_test.py tests/client/python/arrays_test.py tests/client/python/docs_test.py
