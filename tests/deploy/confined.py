# SPDX-License-Identifier: Apache-2.0
"""confined.py ROOT PROGRAM [ARGUMENT...]: runs PROGRAM of the file system under ROOT as a strict
container would: ROOT is read-only, uid and gid are 65532, and there are no groups, no capabilities,
and no way to gain one. The network is that of the caller, or a new one with --net before ROOT. Needs
root and the right to make namespaces. Runs nothing of ROOT but PROGRAM, so ROOT needs no shell."""

import ctypes
import fcntl
import os
import socket
import struct
import sys

USER = 65532
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000
SIOCSIFFLAGS, IFF_UP_RUNNING = 0x8914, 0x41
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
LAST_CAPABILITY = "/proc/sys/kernel/cap_last_cap"


def main(root, program, arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if root == "--net":
        check(libc, libc.unshare(CLONE_NEWNET))
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))
        root, program, *arguments = program, *arguments
    check(libc, libc.unshare(CLONE_NEWNS))
    mount(libc, None, "/", MS_REC | MS_PRIVATE)
    mount(libc, root, root, MS_BIND)
    if os.path.isdir(f"{root}/proc"):
        mount(libc, "/proc", f"{root}/proc", MS_BIND)
    mount(libc, None, root, MS_REMOUNT | MS_BIND | MS_RDONLY)
    with open(LAST_CAPABILITY, encoding="ascii") as file:
        last = int(file.read())
    os.chroot(root)
    os.chdir("/")
    for capability in range(last + 1):
        check(libc, libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0))
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    check(libc, libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.execv(program, [program, *arguments])


def mount(libc, source, target, flags):
    check(libc, libc.mount(source and source.encode(), target.encode(), None, ctypes.c_ulong(flags), None))


def check(libc, result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
