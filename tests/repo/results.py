# SPDX-License-Identifier: Apache-2.0
"""Tables of figures in docs, made from bench/results. A page marks a table with a comment of one line,

    <!-- results FOLDER: NAME ... [all] -->

and ends it with `<!-- results: end -->`. It shows the rows of bench/results/FOLDER/NAME.json that have a target; with `all`, every row.
Between `<!-- summary FOLDER ...: NAME ... -->` and `<!-- summary: end -->` stands a line for each target, with a column for each folder.
`results.py --fix` writes the tables; the check `results` compares."""

import itertools
import json
import pathlib
import re
import sys

TABLE = re.compile(r"(<!-- results (?P<folder>[\w-]+): (?P<names>[\w -]+?)(?P<all> all)? -->\n).*?(<!-- results: end -->)", re.DOTALL)
SUMMARY = re.compile(r"(<!-- summary (?P<folders>[\w -]+): (?P<names>[\w -]+) -->\n).*?(<!-- summary: end -->)", re.DOTALL)
HEAD = "| what | shape | dtype | threads | value | baseline | ratio | target |\n|---|---|---|---|---|---|---|---|\n"


def line(row):
    verdict = "" if row["target"] is None else " met" if row["met"] else " **MISS**"
    target = "" if row["target"] is None else f"{row['target']:.2g}"
    if row["target"] is not None and row["ratio"] < row["target"] and "most" in row:
        target += f"; floor {row['most']:.2f}"
    shape = (f"{row['shape']}, {row['cache']}" if row["cache"] else row["shape"]).replace("|", "\\|")
    value, baseline = f"{row['value']:.4g} {row['unit']}", f"{row['baseline']} {row['baseline_value']:.4g}"
    return f"| {row['name']} | {shape} | {row['dtype']} | {row['threads']} | {value} | {baseline} | {row['ratio']:.2f}{verdict} | {target} |\n"


def table(tree, match):
    rows = [row for name in match["names"].split() for row in json.loads(tree[f"bench/results/{match['folder']}/{name}.json"])]
    return match[1] + HEAD + "".join(line(row) for row in rows if match["all"] or row["target"] is not None) + match[5]


def reached_and_range(rows):
    """What a run says of one target: rows that reach it, rows below it that meet it by their floor, and all ratios."""
    ratios = [row["ratio"] for row in rows]
    reached = sum(row["ratio"] >= row["target"] for row in rows)
    floors = sum(row["met"] for row in rows) - reached
    if len(rows) > 1:
        floored = f", {floors} at {'its' if floors == 1 else 'their'} floor" if floors else ""
        return f"{reached} of {len(rows)}{floored}: {min(ratios):.2f} to {max(ratios):.2f}"
    return "".join(f"{row['ratio']:.2f}{'' if reached else ' at its floor' if floors else ' **MISS**'}" for row in rows)


def baseline_of(row):
    name = row["baseline"].removeprefix("peer:")
    return "best peer" if name.endswith("(best)") and name != row["baseline"] else name


def summary(tree, match):
    folders, names = match["folders"].split(), match["names"].split()
    runs, targets = {}, {}
    for name, folder in itertools.product(names, folders):
        path = f"bench/results/{folder}/{name}.json"
        if path in tree:
            runs[name, folder] = json.loads(tree[path])
    if missing := {*names, *folders} - set(itertools.chain(*runs)):
        raise KeyError(f"bench/results has nothing of {', '.join(sorted(missing))}")
    for (_, folder), rows in runs.items():
        for row in rows:
            if row["target"] is not None:
                key = (row["name"], baseline_of(row), f"{row['target']:.2g}")
                targets.setdefault(key, {column: [] for column in folders})[folder].append(row)
    head = "| " + " | ".join(["what", "baseline", "target", *folders]) + " |\n" + "|---" * (3 + len(folders)) + "|\n"
    return match[1] + head + "".join("| " + " | ".join([*key, *map(reached_and_range, found.values())]) + " |\n" for key, found in targets.items()) + match[4]


def with_tables(tree, document):
    return SUMMARY.sub(lambda match: summary(tree, match), TABLE.sub(lambda match: table(tree, match), document))


def violations(tree):
    pages = {name: text for name, text in tree.items() if name.endswith(".md") and re.search("<!-- (results|summary) ", text or "")}
    return [f"{name}: a table differs from bench/results; run tests/repo/results.py --fix" for name, text in pages.items() if with_tables(tree, text) != text]


if __name__ == "__main__":
    root = pathlib.Path(__file__).parents[2]
    results = {str(path.relative_to(root)): path.read_text() for path in (root / "bench/results").rglob("*.json")}
    if "--fix" in sys.argv:
        for page in (root / "docs").glob("*.md"):
            page.write_text(with_tables(results, page.read_text()))
