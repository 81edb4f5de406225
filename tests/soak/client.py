# SPDX-License-Identifier: Apache-2.0
"""client.py TARGET CA LEASE_SOCKET SEED CALLS_A_SECOND: makes calls of every kind until it is killed, over one connection after
the other; as many as it can if CALLS_A_SECOND is 0. Writes a line for each call: its kind and how it ended. A wrong answer is a
line that begins with WRONG."""

import random
import sys
import time

import grpc
from calls import Caller, Wrong

# How a call may end while its server is short of room, its certificate changes or its connection closes. A region goes with
# its connection (NOT_FOUND).
EXPECTED = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED"}
OF_REGIONS = {"region": {"NOT_FOUND"}}


def connect(target, ca):
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    if target.startswith("unix:"):
        return grpc.insecure_channel(target, options)
    with open(ca, "rb") as file:
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(file.read()), options)


def outcome(caller):
    """(kind, how it ended) of one call; a wrong answer is "WRONG ..."."""
    call = caller.random.choice(caller.calls)
    kind = call.__name__
    try:
        call()
    except Wrong as wrong:
        return kind, f"WRONG {wrong}"
    except grpc.RpcError as error:
        code = error.code().name
        allowed = code in EXPECTED or code in OF_REGIONS.get(kind, ())
        return kind, code if allowed else f"WRONG {code}: {error.details()}"
    except OSError as error:  # the lease socket takes no more connections
        return kind, f"lease socket: {error.strerror}"
    return kind, "OK"


def main():
    target, ca, lease_socket, seed, rate = sys.argv[1:]
    lives = random.Random(int(seed))
    while True:
        with connect(target, ca) as channel:
            caller = Caller(channel, lease_socket, lives.getrandbits(60))
            for _ in range(lives.randrange(20, 200)):
                kind, how = outcome(caller)
                print(f"{kind} {how}".replace("\n", " "), flush=True)
                if float(rate):
                    time.sleep(lives.expovariate(float(rate)))


main()
