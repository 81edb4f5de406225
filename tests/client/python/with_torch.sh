#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# with_torch.sh BUILD -m MODULE|PROGRAM ARGUMENT...: as run.sh, with the packages of build/.venv-conformance (torch,
# transformers, diffusers) before those of build/.venv. Exit status 77, which CTest shows as skipped: they are not there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

venv=build/.venv-conformance
if [[ ! -x $venv/bin/python ]] || ! cmp -s tests/conformance/requirements.txt $venv/requirements.txt; then
  echo "SKIP: torch, transformers and diffusers are not installed: ./dev conformance installs them (1 GB)"
  exit 77
fi

source tests/support/venv.sh
load_stubs
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TRANSFORMERS_VERBOSITY=error PHASOR_PYTHON_EXECUTABLE=$venv/bin/python

build=$1
shift
# Added last: the versions of .venv-conformance come first.
start='import glob, runpy, site, sys
for folder in glob.glob("build/.venv/lib/python3*/site-packages"): site.addsitedir(folder)
sys.argv.pop(0)
if sys.argv[0] == "-m":
    sys.argv.pop(0)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")'
exec tests/client/python/run.sh "$build" -c "$start" "$@"
