# SPDX-License-Identifier: Apache-2.0
"""Checks the promises about crashes, leaks, races and hostile clients, and says which cannot be checked here. Uses the results of the
last `./dev test` and `./dev soak`."""

import json
import re

import acceptance
from acceptance import ROOT, Fail, Miss, Skip, command, of_full, of_test

TOPIC = "reliability"
LONG_SOAK_MINUTES = 120
OVERLOADED_SERVERS = 2000
FUZZ_EXECUTIONS = 10**8
SCHEDULES = 10**5


def soak():
    """soak: no crash, no wrong answer, flat memory, gauges back to zero, for two hours"""
    result = ROOT / "build/soak/soak.json"
    if not result.exists():
        raise Skip("no result of ./dev soak here: run ./dev soak 120")
    seen = json.loads(result.read_text(encoding="utf-8"))
    if seen["problems"]:
        raise Fail("; ".join(seen["problems"][:3]))
    text = f"{seen['calls']} calls in {seen['minutes']:g} minutes, memory {seen['slope_mib_a_minute']:+.2f} MiB a minute"
    if seen["minutes"] < LONG_SOAK_MINUTES:
        raise Miss(f"{text}; two hours are the target")
    return text


def faults():
    """faults: no wrong number, and the same process serves again"""
    table = command("python3", "tests/faults/faults_test.py", ROOT / "build/release", timeout=900)
    rows = re.findall(r"^\| .* \| .* \| (.*) \|$", table, re.MULTILINE)[1:]
    return f"{len(rows)} kinds of faults"


def containers():
    """every container that a stranger can make grow has a bound and a test of it"""
    command("python3", "tests/repo/check.py", "containers", timeout=60)
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    return f"{len(re.findall(r'^. `[a-z_]+/[a-z_]+: [a-z_]+_` ', page, re.MULTILINE))} containers"


def weaknesses():
    """every known weakness of gRPC 1.51.1 has a test or a reason"""
    rows = re.findall(r"^\| (CVE-\d+-\d+) \|.*\| (.+) \|$", (ROOT / "docs/security.md").read_text(encoding="utf-8"), re.MULTILINE)
    if not rows:
        raise Fail("docs/security.md has no table of them")
    return f"{len(rows)} in docs/security.md, {sum('Test.' in row[1] for row in rows)} with a test"


def so_far(row, target):
    """The sum of the numbers that `row` finds in docs/reliability.md, which records every run."""
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    total = sum(int(number.replace(",", "")) for number in re.findall(row, page, re.MULTILINE))
    if total < target:
        raise Miss(f"{total:,} so far; docs/reliability.md says of what, and how to run more")
    return f"{total:,}"


def fuzzing():
    """10^8 executions of fuzzing"""
    return so_far(r"^\| \d{4}-\d\d-\d\d \| .* \| ([\d,]+) \|$", FUZZ_EXECUTIONS)


def overloaded():
    """2,000 servers overloaded under pressure, each in a process of its own: no crash, and each ends by itself"""
    return so_far(r"^\| \d{4}-\d\d-\d\d \| ([\d,]+) servers,", OVERLOADED_SERVERS)


def schedules():
    """10^5 random schedules of engine, plan cache, regions, leases, threads and streams, without a loss"""
    return so_far(r"^\| .* \| ([\d,]+) \| [\d.]+ million times \|$", SCHEDULES)


def hostile():
    """what a suite of hostile clients found is mended, each with a test that there is"""
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8").partition("## What hostile clients found")[2]
    names = re.findall(r"`(\w+)\.(\w+)`", page.partition("\n## ")[0])
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*_test.cc"))
    lost = [f"{suite}.{name}" for suite, name in names if not re.search(rf"TEST\w*\(\s*{suite},\s*{name}\)", sources)]
    if lost or not names:
        raise Fail(f"docs/reliability.md names no tests, or some that there are not: {', '.join(lost)}")
    return f"{len(names)} tests in docs/reliability.md, which run with ./dev test"


def newer_grpc():
    """the test suite against a current gRPC"""
    log = ROOT / "build/newer/root/build/tests.txt"
    if not log.exists():
        raise Skip("./dev newer has not run here")
    said = re.search(r"(\d+)% tests passed, (\d+) tests failed out of (\d+)", log.read_text(encoding="utf-8", errors="replace"))
    if not said or said[2] != "0":
        raise Fail(said[0] if said else "the tests did not end")
    return said[0]


CHECKS = [
    of_test("a server that is asked for twice its capacity stays up", r"server_overload_test"),
    of_full("the same for a minute", r"server_overload_60_seconds"),
    overloaded,
    soak,
    faults,
    of_test("floods of headers, resets, connections; slow peers; bombs: bounded memory, others are served", r"server_abuse_test"),
    of_test("limits hold for peers that acknowledge nothing; compressed messages are never read as plain", r"server_open_calls_test"),
    of_test("regions go with their connections, and with them their names", r"server_departed_test"),
    of_test("names of certificates count by their type; floods end under TLS too", r"e2e_tls_test"),
    containers,
    weaknesses,
    hostile,
    of_test("requests changed at random are answered or refused by name", r"request_mutation_test"),
    of_test("parsers of files, policy, configuration and frames likewise", r"parser_mutation_test"),
    of_test("the codec of raw messages accepts what protobuf accepts, and nothing else", r"raw_message_fuzz_test"),
    of_test("changed bytes on every socket of a server: it stays up and serves others", r"e2e\.sockets"),
    fuzzing,
    of_test("engine, regions, leases and streams under random schedules", r"e2e\.schedules"),
    schedules,
    of_test("mutexes are locked in one order, and debug builds check it", r"server_base_test"),
    newer_grpc,
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
