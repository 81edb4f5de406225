#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# leased_example.sh SERVER EXAMPLE: runs an example against a server on this host, which must lease its memory.
set -euo pipefail

folder=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
exec 3< <(exec "$1" --listen="unix:$folder/calls" --lease-socket="$folder/leases" 2>&1)
server=$!
while read -r line <&3; do
  [[ $line != *'"event":"serving"'* ]] || break
done
"$2" "unix:$folder/calls" | tee "$folder/said"
grep -q '^leased memory$' "$folder/said"
