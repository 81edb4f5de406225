#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package_test.sh BUILD_DIR: makes the packages of a release build, and uses them where nothing of ours is: in a bare
# Debian 12 that debootstrap makes. Boots systemd in namespaces of its own, installs the Debian package, starts the unit
# and calls it, by README's commands; upgrades it under load; purges, after which no file may be left. Unpacks the tarball
# in another folder and calls its server. Compiles a program against libphasor-dev. Exit status 77: this machine cannot do
# that.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

skip() { echo "SKIP: $*" >&2; exit 77; }
pass() { echo "PASS: $*"; }
fail() {
  echo "FAIL: $*" >&2
  [[ ! -s $work/console ]] || tail -n 40 "$work/console" >&2
  exit 1
}
[[ $(id -u) == 0 ]] || skip "a system of its own needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed; ./dev test installs it (deploy/apt-test-packages.txt)"
unshare --mount --pid --fork --net --cgroup true 2>/dev/null || skip "this machine forbids namespaces"
mirror=$(deploy/apt-mirror.sh)
[[ -n $mirror ]] || skip "apt has no bookworm mirror here to make a bare Debian from"

# Not below /tmp, which programs may not be run from everywhere.
work=$(mktemp -d "$build/package_test.XXXXXX")
root=$work/root
init=
finish() {
  [[ -z $init ]] || kill -KILL "$init" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
milliseconds() { date +%s%3N; }

# --- a bare Debian --------------------------------------------------------------------------------

base=$build/package_base.tar
if [[ ! -s $base ]]; then
  debootstrap --variant=minbase --include=systemd,systemd-sysv bookworm "$work/base" "$mirror" >"$work/log" 2>&1 ||
    skip "debootstrap failed: $(tail -n 1 "$work/log")"
  tar -C "$work/base" -cf "$base.part" .
  mv "$base.part" "$base"
  rm -rf "$work/base"
fi
mkdir "$root"
tar -C "$root" -xf "$base"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# inside COMMAND...: runs it there, with this machine's devices.
inside() {
  # shellcheck disable=SC2016 # the inner shell expands these
  unshare --mount --fork --pid --kill-child "--mount-proc=$root/proc" sh -c 'mount --rbind /dev "$0/dev" &&
    exec chroot "$0" /usr/bin/env DEBIAN_FRONTEND=noninteractive "$@"' "$root" "$@"
}
inside apt-get update -qq >"$work/log" 2>&1 || skip "apt cannot be used there: $(tail -n 1 "$work/log")"
# What the package needs from Debian, so that only the package itself is compared below.
packages=$(deploy/package.sh "$build")
deb=$(grep -E '/phasor_[^/]*\.deb$' <<<"$packages")
needs=$(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/(.*//')
# shellcheck disable=SC2086 # words
inside apt-get install -qq -y --no-install-recommends $needs >"$work/log" 2>&1 || fail "$(tail -n 5 "$work/log")"
inside apt-get clean
# Every path with its owner, but what dpkg and a boot write about themselves.
paths() { (cd "$root" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/systemd -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/apt \
  -o -path ./run -o -path ./tmp -o -path ./var/tmp -o -path ./proc -o -path ./sys -o -path ./dev \) -prune -o -printf '%p %U %G\n' | sort); }

# --- systemd, in namespaces of its own ------------------------------------------------------------

boot() {
  cat >"$work/boot.sh" <<BOOT
set -e
mount --make-rprivate /
mount --bind $root $root
mount -t proc proc $root/proc
mount -t sysfs -o ro sys $root/sys
mount -t cgroup2 none $root/sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs $root/run
mount -t tmpfs -o mode=755 tmpfs $root/dev
for name in null zero full random urandom tty; do cp -a /dev/\$name $root/dev/; done
mkdir $root/dev/shm $root/dev/pts $root/dev/mqueue $root/dev/hugepages
mount -t devpts -o newinstance,ptmxmode=0666 devpts $root/dev/pts
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd
: >$root/dev/console
ip link set lo up 2>/dev/null || python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x49))'
# A root of its own, because units cannot have their namespaces inside a chroot.
cd $root
mkdir run/old
pivot_root . run/old
umount -l /run/old
rmdir /run/old
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=phasor-test /lib/systemd/systemd \
  --log-target=journal --unit=multi-user.target
BOOT
  unshare --fork --pid --mount --ipc --uts --cgroup --net --kill-child bash "$work/boot.sh" </dev/null >"$work/console" 2>&1 &
  local outer=$! tries=0
  until init=$(pgrep -P $outer) && in_system systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; do
    tries=$((tries + 1))
    [[ $tries -lt 600 ]] || fail "systemd does not start here"
    kill -0 $outer 2>/dev/null || skip "systemd does not run in namespaces here: $(tail -n 1 "$work/console")"
    sleep 0.1
  done
}
in_system() { timeout 120 nsenter -t "$init" -m -p -i -u -n -C -r -w -- "$@"; }

paths >"$work/before"
cp "$deb" "$root/root/"
boot
pass "a bare Debian 12 has booted"

# The commands of README's first screen. The machine's administrator is root here.
readme=$(sed -n '/^    sudo apt install/,/^$/s/^    //p' README.md)
[[ $(wc -l <<<"$readme") == 2 ]] || fail "README's commands are: $readme"
answer=(phasor encode --preset timestep-sin-cos --dim 128 --positions 10)
began=$(milliseconds)
in_system bash -c "cd && sudo() { \"\$@\"; } && $readme" </dev/null >"$work/first" 2>"$work/log" ||
  fail "$(tail -n 5 "$work/log") $(in_system journalctl --no-pager -b | tail -n 20)"
grep -q -- "-0.544021" "$work/first" || fail "wrong answer: $(cat "$work/first")"
echo "MEASURED from the Debian package to the first answer: $(($(milliseconds) - began)) ms"
[[ $(in_system phasor --version) == *"$(dpkg-deb -f "$deb" Version)"* ]] || fail "the command line is not the package's"
pass "README's commands install the package, start the server and call it"

# Ordinary users need the group for the sockets.
in_system useradd --groups phasor-clients member
in_system useradd stranger
as() { in_system setpriv --reuid "$1" --regid "$1" --init-groups "${@:2}"; }
as member "${answer[@]}" --server unix:/run/phasor/phasor.sock | grep -q -- "-0.544021" || fail "a member of the group cannot call"
if as stranger "${answer[@]}" --server unix:/run/phasor/phasor.sock >/dev/null 2>&1; then fail "a stranger can call"; fi
as member phasor bench --preset llama-3 --tokens 64 --shared --duration 0.2 --server unix:/run/phasor/phasor.sock >"$work/log" 2>&1 ||
  fail "a member of the group cannot share memory: $(tail -n 3 "$work/log")"
pass "members of phasor-clients call and share memory over the sockets, others do not"

in_system systemctl reload phasor || fail "$(in_system journalctl --no-pager -b | tail -n 10)"
was=$(in_system systemctl show -P MainPID phasor)
# A machine on which the new server takes its time, longer than a client waits for one that cannot be reached.
mkdir "$root/etc/systemd/system/phasor.service.d"
printf '[Service]\nExecStartPre=sleep 4\n' >"$root/etc/systemd/system/phasor.service.d/slow.conf"
in_system systemctl daemon-reload
loads=()
for server in 127.0.0.1:50051 unix:/run/phasor/phasor.sock; do
  as member phasor bench --server "$server" --preset llama-3 --rate 50 --duration 12 --timeout 60 --concurrency 64 --attempts 3 --json >"$work/load${#loads[@]}" &
  loads+=($!)
done
in_system dpkg --install --force-downgrade "/root/${deb##*/}" >"$work/log" 2>&1 || fail "$(tail -n 5 "$work/log")"
[[ $(in_system systemctl show -P MainPID phasor) != "$was" ]] || fail "an upgrade left the old server running"
in_system systemctl is-active --quiet phasor || fail "no server runs after an upgrade"
for number in "${!loads[@]}"; do
  wait "${loads[$number]}" || fail "the load ended with an error"
  python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))["phasor"]
sys.exit(f"failed calls: {report}" if report["errors"] or not report["calls"] else 0)' "$work/load$number" || fail "an upgrade lost calls"
done
as member "${answer[@]}" --server unix:/run/phasor/phasor.sock | grep -q -- "-0.544021" || fail "nobody answers on the Unix socket after an upgrade"
rm -r "$root/etc/systemd/system/phasor.service.d"
in_system systemctl daemon-reload
pass "an upgrade replaces the server in 4 s and more, and loads of 50 calls/s over TCP and the Unix socket lose no call"

# Other addresses: sockets that systemd keeps must not be in the way of new ones.
sed -i 's/127.0.0.1:50051/0.0.0.0:50051/; s/^listen:/allow_plaintext: true\n&/' "$root/etc/phasor/phasor.txtpb"
in_system systemctl restart phasor || fail "no restart with other addresses: $(in_system journalctl --no-pager -b -u phasor | tail -n 10)"
in_system "${answer[@]}" --server 127.0.0.2:50051 | grep -q -- "-0.544021" || fail "no answer on the new address"
in_system systemctl stop phasor
if in_system "${answer[@]}" --server 127.0.0.1:50051 >/dev/null 2>&1; then fail "somebody answers after a stop"; fi
if in_system test -e /run/phasor; then fail "a stop left /run/phasor"; fi
pass "after a change of the addresses a restart listens there, and after a stop nobody does"

in_system userdel member
in_system userdel stranger
in_system dpkg --purge phasor >"$work/log" 2>&1 || fail "$(tail -n 5 "$work/log")"
rm "$root/root/${deb##*/}"
if in_system systemctl is-active --quiet phasor; then fail "the server runs without its package"; fi
paths >"$work/after"
left=$(diff "$work/before" "$work/after" | grep -vE '^[0-9]|/etc/(passwd|group|shadow|gshadow|subuid|subgid)-? |/etc/machine-id' || true)
[[ -z $left ]] || fail "purging left or took: $left"
if in_system getent group phasor-clients >/dev/null; then fail "purging left the group"; fi
pass "purging leaves nothing"
kill -KILL "$init"
init=

# --- the tarball ----------------------------------------------------------------------------------

rm -rf "$root" && mkdir "$root" && tar -C "$root" -xf "$base" # without the libraries that were installed above
began=$(milliseconds)
mkdir -p "$root/srv"
tar -C "$root/srv" -xzf "$(grep '\.tar\.gz$' <<<"$packages")"
mv "$root"/srv/phasor-* "$root/srv/anywhere"
inside timeout 60 sh -c '/srv/anywhere/bin/phasor-server --listen unix:/tmp/s >/tmp/log 2>&1 &
until /srv/anywhere/bin/phasor encode --server unix:/tmp/s --preset timestep-sin-cos --dim 128 --positions 10; do :; done 2>/dev/null' |
  grep -q -- "-0.544021" || fail "no answer from the tarball: $(cat "$root/tmp/log")"
echo "MEASURED from the tarball to the first answer: $(($(milliseconds) - began)) ms"
pass "the tarball's server answers in another folder, without the libraries of the package"

# --- the client library ---------------------------------------------------------------------------

dpkg-deb -x "$(grep '/libphasor-dev_' <<<"$packages")" "$work/dev"
pc=$(dirname "$(find "$work/dev" -name phasor.pc)")
# shellcheck disable=SC2046 # words
"${CXX:-c++}" client/examples/quickstart/main.cc -o "$work/quickstart" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs phasor)
"$work/quickstart" | grep -q -- "-0.544021" || fail "a program that was compiled with libphasor-dev"
pass "a program compiles with libphasor-dev and runs"
