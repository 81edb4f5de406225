#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# systemd_test.sh SERVER: checks that systemd accepts the unit without a warning and that it exposes
# little, and that SERVER accepts its command lines. Exit status 77: systemd's tools are not
# installed.
set -u
cd "$(dirname "$0")/../.." || exit 1
server=$1
unit=deploy/systemd/phasor.service
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "FAIL: $*" >&2
  exit 1
}

if ! command -v systemd-analyze >/dev/null; then
  echo "SKIP: systemd-analyze is not installed; ./dev test installs it (deploy/apt-test-packages.txt)"
  exit 77
fi

# systemd looks whether the program is there.
sed "s#/usr/bin/phasor-server#$server#" $unit >"$folder/phasor.service"
complaints=$(systemd-analyze verify "$folder/phasor.service" 2>&1) || fail "$complaints"
[ -z "$complaints" ] || fail "$complaints"
echo "systemd-analyze verify: nothing to complain about"
systemd-analyze security --offline=true --threshold=15 "$folder/phasor.service" >"$folder/exposure" 2>&1 || fail "$(cat "$folder/exposure")"
tail -n 1 "$folder/exposure"

# The flags of the unit, with a file that says what the unit's comment asks for.
printf 'drain_delay: "10s"\ndrain_timeout: "30s"\n' >"$folder/phasor.txtpb"
commands=$(sed -n 's#^ExecStart\(Pre\)\{0,1\}=/usr/bin/phasor-server ##p' $unit | sed "s#/etc/phasor#$folder#")
[ "$(echo "$commands" | wc -l)" = 2 ] || fail "two command lines expected: $commands"
echo "$commands" | while read -r flags; do
  # shellcheck disable=SC2086 # flags are words
  "$server" $flags --check-config || fail "$flags"
done || exit 1
stop=$(sed -n 's/^TimeoutStopSec=\([0-9]*\)s$/\1/p' $unit)
[ "$stop" -ge 45 ] || fail "TimeoutStopSec is $stop"
