# SPDX-License-Identifier: Apache-2.0
"""Everything in the server that holds several things for longer than one request is listed in docs/security.md, with its
bound and with a test of that bound: containers that a lock guards, and maps, sets, lists and queues that a member of a class
holds without one."""

import re

PAGE = "docs/security.md"
KIND = r"(?:std::|absl::)?(?:flat_hash_map|flat_hash_set|node_hash_map|unordered_map|unordered_set|multimap|map|set|list|deque)<.*>"
GUARDED = r"(?:KIND|(?:std::)?vector<.*>|Entries|Clients|Deadlines)".replace("KIND", KIND)
MEMBER = re.compile(
    rf"^ +(?:mutable )?(?:{KIND}|Entries|Clients|Deadlines) (\w+_)\b[^();\n]*;|^ +(?:mutable )?{GUARDED} (\w+_)\s+ABSL_GUARDED_BY\(\*?\w+\)",
    re.MULTILINE,
)
ROW = re.compile(r"^\| `([\w/]+): (\w+_)` \| [^|]+ \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def members(tree):
    """Members of classes of the server as "folder/file: name_"."""
    found = set()
    for path, text in tree.items():
        if path.startswith("server/") and path.endswith((".h", ".cc")):
            for match in MEMBER.finditer(text or ""):
                found.add(f"{path.removeprefix('server/').rsplit('.', 1)[0]}: {match[1] or match[2]}")
    return found


def violations(tree):
    page = tree.get(PAGE) or ""
    tests = "\n".join(text or "" for path, text in tree.items() if path.startswith("tests/"))
    rows = {f"{match[1]}: {match[2]}": match[3] for match in ROW.finditer(page)}
    actual = members(tree)
    found = [f"server/{member}: is in no row of {PAGE}; say there what bounds it" for member in sorted(actual - set(rows))]
    found += [f"{PAGE}: {row}: there is no such member" for row in sorted(set(rows) - actual)]
    for row, proof in sorted(rows.items()):
        for suite, test in re.findall(r"`(\w+)\.(\w+)`", proof):
            if not re.search(rf"\bTEST(_F|_P)?\({suite}, {test}\)", tests):
                found.append(f"{PAGE}: {row}: there is no test {suite}.{test}")
        if not re.search(r"`\w+\.\w+`|fixed", proof):
            found.append(f"{PAGE}: {row}: names no test of its bound")
    return found
