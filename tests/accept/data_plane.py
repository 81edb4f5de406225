# SPDX-License-Identifier: Apache-2.0
"""Checks the promises of the data plane. Uses the results of the last `./dev test --full` and
`./dev bench rpc shm stream inproc batching`."""

import json
import re
import subprocess

import acceptance
import running
from acceptance import ROOT, Fail, Miss, command, of_benchmark, of_full, promised

TOPIC = "data-plane"
BUILD = ROOT / "build/release"
CLI = BUILD / "client/cli/phasor"


def of_group(promise, program, *tests):
    """Tests of one program, by their names in it."""

    def check():
        out = command(BUILD / program, "--gtest_filter=" + ":".join(tests), timeout=300)
        if f"[  PASSED  ] {len(tests)} test" not in out:
            raise Fail(out[-300:])
        return f"{len(tests)} tests passed"

    return promised(promise, check)


def load_generator():
    """phasor bench: every way to call, beside the bare wire, without an error"""
    seen = []
    with running.server([BUILD / "server/phasor-server"]) as address:
        for mode in ("unary", "stream", "chunks"):
            echo = ["--vs-echo"] if mode == "unary" else []
            out = command(CLI, "bench", "--server", address, "--preset", "llama-2", "--tokens", "64", "--mode", mode,
                          "--duration", "1", "--json", *echo, timeout=60)  # fmt: skip
            result = json.loads(out)
            if result["phasor"]["errors"] or not result["phasor"]["calls"]:
                raise Fail(f"{mode}: {result['phasor']}")
            seen.append(f"{mode} {result['phasor']['calls_per_second']:.0f} calls/s")
    return ", ".join(seen)


def unary_memory():
    """256 MiB in one call: at most 2.4 payloads resident, however many came before"""
    out = command(BUILD / "tests/e2e/server_limits_test", "--gtest_filter=UnaryMemoryTest.*", timeout=300)
    return next(line for line in out.split("\n") if line.startswith("MEASURED")).removeprefix("MEASURED ")


def slow_readers():
    """64 slow readers: resident at most base + budget + 10 %"""
    out = command(BUILD / "tests/e2e/server_limits_test", "--gtest_filter=*ReadersThatDoNotRead*", timeout=120)
    base, _, peak = map(int, re.search(r"base (\d+), full (\d+), peak (\d+) MiB", out).groups())
    bound = (base + 256) * 1.1
    said = f"{peak} MiB, bound {bound:.0f} (base {base}, budget 256)"
    if peak > bound:
        raise Miss(said)
    return said


def overload():
    """Overload at twice capacity for 60 s: goodput and recovery at least 95 %, p99 at most 3 times the unloaded;
    refusals p99 < 5 ms; resident at most base + budget + 10 %"""
    out = command("env", "PHASOR_OVERLOAD_SECONDS=60", BUILD / "tests/e2e/server_limits_test", "--gtest_filter=OverloadTest.*", timeout=200)
    said = next(line for line in out.split("\n") if line.startswith("capacity"))
    reached = re.search(r"goodput ([\d.]+), recovery ([\d.]+), p99 ([\d.]+) times the unloaded; refused in ([\d.]+) ms", out)
    goodput, recovery, slower, refused = map(float, reached.groups())
    peak, base, budget = map(float, re.search(r"at most ([\d.]+) MiB \(before ([\d.]+), budget ([\d.]+)\)", said).groups())
    if min(goodput, recovery) < 0.95 or slower > 3 or refused > 5 or peak > (base + budget) * 1.1:
        raise Miss(said)
    return said


SOCKET = "tests/server/regions/server_memory_test"
CHECKS = [
    of_benchmark("rpc", "./dev bench rpc meets its targets"),
    of_benchmark("shm", "./dev bench shm meets its targets"),
    of_benchmark("stream", "./dev bench stream: items and chunks beside calls"),
    of_benchmark("inproc", "./dev bench inproc meets its targets"),
    of_benchmark("batching", "./dev bench batching: 20 times fewer launches for 64 clients, no time added to one"),
    load_generator,
    of_full("8 GiB streamed with at most 256 MiB resident on the server", r"server_stream_memory_8_gib"),
    of_full("Streams: flow control, errors per item, storms of cancellations and deadlines", r"(asan/)?(server_api_test|client_(raw|item)_stream_test)"),
    unary_memory,
    slow_readers,
    overload,
    of_full("Batching: bytes, fairness, deadlines, bad calls; launches on the fake device", r"(asan/|tsan/)?server_engine_test"),
    of_full("Shared memory has the bytes of calls that travel", r"(asan/)?e2e_client_shared_test"),
    of_group(
        "Shared-memory attacks: truncation, owners killed, foreign releases, 10,000 cycles, quotas",
        SOCKET,
        "SealedMemoryTest.NobodyCanTakeItAway",
        "SealedMemoryTest.WhatCouldEndTheProcessIsRefused",
        "LeaseSocketTest.AClientThatIsKilledLeavesNothing",
        "LeaseSocketTest.NobodyReleasesWhatIsAnothers",
        "LeaseSocketTest.ManyCyclesLeaveNoDescriptor",
        "LeaseStoreTest.QuotasAreEveryOwnersOwn",
    ),
    of_full("Batches, streams and large tensors in ordinary memory use shared memory, with the bytes of calls that travel", r"(asan/)?e2e_client_staged_test"),
    of_group(
        "Named regions: truncation after registering and during a run, unlinking, a killed owner, foreign use, 10,000 cycles, overflow, names, quotas",
        "tests/e2e/server_e2e_test",
        *(f"LostRegionsTest.{name}" for name in (
            "AClientThatCutsItsMemoryShortAfterRegisteringGetsAnError",
            "AClientThatCutsItsMemoryShortDuringARunGetsAnError",
            "PagesThatVanishDuringARunFailOnlyTheCallsThatUsedThem",
            "MemoryMayChangeItsSizeAllTheTime",
            "AClientMayUnlinkItsMemory",
            "AnOwnerThatIsKilledDuringARunLeavesNothing",
        )),
        *(f"NamedRegionsTest.{name}" for name in (
            "ARegionIsNothingToOthers",
            "CyclesOfRegisteringLeaveNoDescriptor",
            "RangesOutsideARegionAreRefusedEvenWhenTheirEndOverflows",
            "NamesAreNoPaths",
            "RegisteringTwiceIsRefusedAndChangesNothing",
            "UnregisteringWhatIsInUseWaitsForItsUsers",
            "WhatIsOnlyReadTakesNoOutput",
            "OwnersHoldNoMoreThanTheyMay",
        )),
    ),  # fmt: skip
    of_group(
        "CUDA IPC regions on the fake device: handle, UUID and range checked, closed with their time or their last user, dirty after a fault in place",
        SOCKET,
        *(f"DeviceRegionTest.{name}" for name in (
            "AHandleIsExactly64Bytes",
            "TheDeviceIsTheOneThatIsMeant",
            "IsInsideTheAllocationAsTheDriverKnowsIt",
            "DirtyMemoryIsNotUsed",
            "MemoryOfALostDeviceIsDirty",
        )),
        *(f"DeviceRegionStoreTest.{name}" for name in (
            "UnregisteringWaitsForTheUsers",
            "IsClosedWhenItsTimeIsOverWithoutAnyCall",
            "ManyCyclesLeaveNothingOpen",
        )),
    ),  # fmt: skip
    of_group(
        "The same through a server: fused buffers in place, owners, ABORTED",
        "tests/server/server_test",
        *(f"ServerDeviceTest.{name}" for name in (
            "AFusedBufferIsRotatedWhereItLies",
            "ARegionIsItsOwnersAndEndsWithItsName",
            "AnAbortedCallMakesItsRegionDirty",
        )),
    ),  # fmt: skip
    of_group(
        "A message that trickles in is ended, by the proxy in front",
        "tests/e2e/fleet_test",
        "EnvoyTest.AMessageThatTricklesInIsEnded",
    ),
    of_group(
        "10,000 calls and 10,000 streams given up at random moments leave nothing",
        "tests/server/api/server_api_test",
        *(f"Backends/CancellationStorm.Of{what}LeavesNothing/{how}" for what in ("Calls", "Streams") for how in ("Batches", "OneByOne")),
    ),
    of_group(
        "2,000 rotations in shared memory given up at random moments: none by half",
        "tests/e2e/e2e_client_test",
        "SharedRequestTest.ACancellationStormRotatesNothingByHalf",
    ),
]

if __name__ == "__main__":
    targets = ["phasor", "phasor-server", "server_memory_test", "server_api_test", "e2e_client_test", "server_e2e_test", "server_limits_test", "fleet_test"]
    subprocess.run(["cmake", "--build", BUILD, "--target", *targets], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    acceptance.run(TOPIC, CHECKS)
