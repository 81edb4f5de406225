#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# newer.sh BUILD OUT.json [SECONDS]: short runs of `phasor bench` against the server of BUILD, to be set
# beside those of a build with another gRPC (docs/newer-grpc.md). An answer of the server is compared
# with one computed in process. The bare server that takes turns is made with the gRPC of BUILD too.
set -euo pipefail
build=$1 out=$2 seconds=${3:-10}
phasor=$build/client/cli/phasor
work=$(mktemp -d)
: >"$work/log"
"$build/server/phasor-server" --listen "unix:$work/socket" --listen 127.0.0.1:0 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
until grep -q '"event":"serving"' "$work/log"; do kill -0 "$server" && sleep 0.05; done
tcp=$(sed -n 's/.*"listeners":\[[^]]*"\(127\.0\.0\.1:[0-9]*\)".*/\1/p' "$work/log")

encode=(encode --preset timestep-sin-cos --dim 16 --positions "0,1,500")
cmp <("$phasor" "${encode[@]}") <("$phasor" "${encode[@]}" --server "$tcp")

{
  echo '['
  comma=
  # Tokens have 16 KiB.
  while IFS="|" read -r name address tokens concurrency mode; do
    echo "$comma{\"case\": \"$name\", \"uptime\": \"$(uptime | sed 's/.*load average/load/')\", \"result\":"
    "$phasor" bench --json --vs-echo --duration "$seconds" --server "$address" --preset llama-1 --tokens "$tokens" \
      --concurrency "$concurrency" --mode "$mode"
    echo '}'
    comma=,
  done <<CASES
16 KiB, 1 at a time, TCP|$tcp|1|1|unary
16 KiB, 16 at a time, TCP|$tcp|1|16|unary
1 MiB, 1 at a time, TCP|$tcp|64|1|unary
1 MiB, 4 at a time, TCP|$tcp|64|4|unary
16 MiB, 1 at a time, TCP|$tcp|1024|1|unary
1 MiB, a stream, TCP|$tcp|64|1|stream
16 KiB, 1 at a time, Unix socket|unix:$work/socket|1|1|unary
1 MiB, 1 at a time, Unix socket|unix:$work/socket|64|1|unary
CASES
  echo ']'
} >"$out"
