#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# asan.sh RELEASE ASAN: builds the module with AddressSanitizer and UndefinedBehaviorSanitizer in the build tree ASAN and runs
# the tests of arrays, calls, coroutines and processes with it, against the programs of RELEASE. Python frees with free(), so
# that the sanitizer sees objects that are used after their end. Exit status 77: there is no build tree ASAN.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

release=$(realpath "$1")
asan=$(realpath -m "$2")
python=$PWD/build/.venv/bin/python
[[ -f $asan/CMakeCache.txt ]] || { echo "SKIP: no $asan: ./dev test --full builds it"; exit 77; }
"$python" -c 'import nanobind' || { echo "SKIP: client/python/requirements.txt is not installed"; exit 77; }
cmake -S . -B "$asan" -DPHASOR_PYTHON=ON -DPython_EXECUTABLE="$python" >"$asan/python.log" || { cat "$asan/python.log"; exit 1; }
cmake --build "$asan" --target phasor_python

reports=$asan/client/python/report
rm -f "$reports".*
status=0
# Interpreters leave memory to the system at their end. pytest would swallow a report.
LD_PRELOAD=$("${CXX:-g++}" -print-file-name=libasan.so):$("${CXX:-g++}" -print-file-name=libstdc++.so) \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:log_path="$reports" UBSAN_OPTIONS=print_stacktrace=1:log_path="$reports" \
  PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$asan/client/python \
  PHASOR_PROGRAMS=$release/client/python/programs PHASOR_FAKE_GPU=$release/tests/client/python \
  "$python" -X faulthandler -m pytest -c tests/client/python/pytest.ini \
  tests/client/python/{arrays,async,client,gpu,process,random}_test.py || status=$?
if compgen -G "$reports.*" >/dev/null; then
  cat "$reports".*
  exit 1
fi
exit $status
