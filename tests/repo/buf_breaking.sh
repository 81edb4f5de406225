#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the wire is compatible with the last release, a tag vX.Y.Z.
cd "$(dirname "$0")/../.." || exit 1
last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null)
if [ -z "$last" ]; then
  echo "SKIP: no release yet that the wire could break"
  exit 77
fi
exec tests/repo/tool.sh buf breaking --against ".git#tag=$last"
