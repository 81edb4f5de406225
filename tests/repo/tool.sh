#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tool.sh NAME [ARGUMENT...]: runs a linter from build/.venv or from the PATH, in the root of the
# repository. Exit status 77, which CTest shows as skipped: it is not installed.
cd "$(dirname "$0")/../.." || exit 1
PATH="$PWD/build/.venv/bin:$PATH"
if ! command -v "$1" >/dev/null; then
  echo "SKIP: $1 is not installed; ./dev test installs it (tests/requirements.txt, deploy/apt-test-packages.txt)"
  exit 77
fi
exec "$@"
