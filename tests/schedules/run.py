# SPDX-License-Identifier: Apache-2.0
"""run.py BUILD: runs tests of engine, regions, leases, streams and thread pool while yields.c changes the order of their threads at
random. Prints a row for each: how many schedules were tried, and how often a thread was made to give way or a wait to end early.
PHASOR_SCHEDULES sets the number for each, 100 unless set; PHASOR_SCHEDULE_SEED the seed. A test that hangs is an error too."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(sys.argv[1]).resolve()
SCHEDULES = int(os.environ.get("PHASOR_SCHEDULES", 100))
SECONDS_FOR_ONE = 2  # a schedule takes a few milliseconds; more only when it hangs

# Those that do not wait for time to pass.
STREAMS = [
    "StreamTest.*", "StreamChunksTest.*", "StreamEndTest.ACancelledStream*", "StreamEndTest.Draining*", "StreamFlowTest.AFullBudget*",
    "StreamFlowTest.WhileTheBudget*", "StreamFlowTest.AnEndedStream*",
]  # fmt: skip
KINDS = {
    "engine": "OfAnEngine", "plan cache": "OfPlansThatSeveralThreadsCompile", "regions of host and GPU memory": "OfRegions", "leases": "OfLeases",
    "threads of the CPU backend": "OfAPoolOfThreads",
}  # fmt: skip


def shaken(shim, *command):
    """(how many tests passed, how often a thread gave way)"""
    environment = {"PHASOR_SCHEDULE_SEED": "1", "PHASOR_SCHEDULES": str(SCHEDULES), **os.environ, "LD_PRELOAD": str(shim)}
    done = subprocess.run([*map(str, command), "--gtest_brief=1"], env=environment, capture_output=True, text=True, timeout=60 + SECONDS_FOR_ONE * SCHEDULES, check=False)
    said = re.search(r"^SCHEDULE threads \d+ yields (\d+) sleeps (\d+) early (\d+)$", done.stderr, re.MULTILINE)
    if done.returncode != 0 or said is None:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
    return sum(map(int, re.findall(r"PASSED  \] (\d+) test", done.stdout))), sum(map(int, said.groups()))


def main():
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        shim = pathlib.Path(folder) / "yields.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", shim, HERE / "yields.c", "-ldl"], check=True)
        print("| what | schedules | a thread gave way |\n|---|---|---|")
        for what, test in KINDS.items():
            passed, times = shaken(shim, BUILD / "tests/schedules/schedules_test", f"--gtest_filter=SchedulesTest.{test}")
            if passed != 1 or times == 0:
                sys.exit(f"{what}: {passed} tests, {times} times")
            print(f"| {what} | {SCHEDULES} | {times} times |", flush=True)
            total += SCHEDULES
        # Each test of a stream is a schedule.
        tests, _ = shaken(shim, BUILD / "tests/server/api/server_api_test", f"--gtest_filter={':'.join(STREAMS)}")
        repeats = max(1, SCHEDULES // max(tests, 1))
        passed, times = shaken(shim, BUILD / "tests/server/api/server_api_test", f"--gtest_filter={':'.join(STREAMS)}", f"--gtest_repeat={repeats}")
        if tests == 0 or passed != tests * repeats:
            sys.exit(f"streams: {passed} tests")
        print(f"| streams | {passed} | {times} times |")
        print(f"MEASURED {total + passed} schedules")


main()
