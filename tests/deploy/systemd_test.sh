#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# systemd_test.sh SERVER: checks that systemd accepts the unit without a warning and that it exposes
# little, that SERVER accepts its command lines, and that its sockets are for a group.
# Exit status 77: systemd's tools are not installed.
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

# The flags of the unit, with the example of a configuration.
cp deploy/systemd/phasor.txtpb "$folder/phasor.txtpb"
commands=$(sed -n 's#^ExecStart\(Pre\)\{0,1\}=/usr/bin/phasor-server ##p' $unit | sed "s#/etc/phasor#$folder#")
[ "$(echo "$commands" | wc -l)" = 2 ] || fail "two command lines expected: $commands"
echo "$commands" | while read -r flags; do
  # shellcheck disable=SC2086 # flags are words
  "$server" $flags --check-config || fail "$flags"
done || exit 1
stop=$(sed -n 's/^TimeoutStopSec=\([0-9]*\)s$/\1/p' $unit)
[ "$stop" -ge 45 ] || fail "TimeoutStopSec is $stop"

# Members of the group get the fast path, others do not. As root only: it needs three users.
systemd-sysusers --dry-run "$PWD/deploy/systemd/phasor.sysusers" 2>&1 | grep -q 'phasor-clients' || fail "phasor.sysusers makes no group"
group=$(sed -n 's/^Group=//p' $unit)
[ "$(sed -n 's/^g \([^ ]*\) -$/\1/p' deploy/systemd/phasor.sysusers)" = "$group" ] || fail "phasor.sysusers makes another group"
systemd-sysusers --dry-run "$PWD/deploy/systemd/phasor.sysusers" 2>&1 | grep -q "user '$(sed -n 's/^User=//p' $unit)'" || fail "phasor.sysusers does not make the unit's user"
if [ "$(id -u)" != 0 ]; then
  echo "not root: the sockets of another user were not tried"
  exit 0
fi
chmod 755 "$folder"
mkdir -m 755 "$folder/run"
chown 61001:61001 "$folder/run"
(umask 077 && exec setpriv --reuid 61001 --regid 61001 --groups 61002 "$server" --socket-group 61002 \
  --listen "unix:$folder/run/phasor.sock" --lease-socket "$folder/run/lease.sock" >"$folder/log" 2>&1) &
pid=$!
trap 'kill $pid; rm -rf "$folder"' EXIT
tries=0
until grep -q '"serving"' "$folder/log"; do
  tries=$((tries + 1))
  [ $tries -lt 600 ] || fail "does not serve: $(cat "$folder/log")"
  sleep 0.1
done
[ "$(stat -c %a:%g "$folder/run/phasor.sock" "$folder/run/lease.sock" | sort -u)" = 660:61002 ] || fail "$(ls -ln "$folder/run")"
asks() { # asks USER GROUP: whether that user can connect to both sockets
  # shellcheck disable=SC2016 # variables of Perl
  setpriv --reuid "$1" --regid "$2" --clear-groups /usr/bin/perl -MSocket -e 'for (@ARGV) {
    socket(my $s, AF_UNIX, SOCK_STREAM, 0) or exit 1;
    connect($s, sockaddr_un($_)) or exit 1;
  }' "$folder/run/phasor.sock" "$folder/run/lease.sock"
}
asks 61003 61002 || fail "a member of the group cannot connect"
if asks 61003 61003; then fail "a user outside the group can connect"; fi
echo "sockets: open to the group, closed to others"
