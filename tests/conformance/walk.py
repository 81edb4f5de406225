# SPDX-License-Identifier: Apache-2.0
"""walk.py: finds, by source, every class and function of diffusers and timm that concerns positions,
and says what was done with each.

A row is found by its name (rotary, rope, timestep, Fourier, embedding, ...), or because it computes
a sine or cosine. It is accounted for if

- its own code ran while a case was computed that agrees with its spec (`Trace` watches);
- or its source is the same, but for its name, as that of a row that ran;
- or it is only made of such rows, or has no sine or cosine (both only where the name does not say
  rotation or sinusoid);
- or stays_out.py has the reason why it is no position embedding, or what to do instead.

A row that upstream adds is in none of these, and fails `./dev conformance`.
"""

import ast
import collections
import dataclasses
import importlib
import inspect
import json
import pathlib
import re
import sys

from stays_out import STAYS_OUT

# Where models are; pipelines that only call models are not searched, and neither is deprecated code.
SEARCHED = {
    "diffusers": (("models/**/*.py", "pipelines/**/*.py"), re.compile(r"/(pipeline_\w+|__init__)\.py$|/deprecated/")),
    "timm": (("layers/*.py", "models/**/*.py"), re.compile(r"/__init__\.py$")),
}
SAYS_SO = re.compile(r"[Rr]otary|R[oO]PE|Rope(?!n)|(?<![a-z])rope|PosEmbed|pos_embed|rot_embed|[Ss]incos|[Ss]inus|[Ff]ourier|get_timestep|Timesteps$|_freqs$")
EMBEDDER = re.compile(r"Embed|Positional")
TABLE = pathlib.Path(__file__).parent / "configs" / "walk.json"
TRIGONOMETRY = {"sin", "cos", "polar", "sin_", "cos_"}


@dataclasses.dataclass
class Row:
    package: str
    path: str  # in the package
    name: str
    computes: bool  # a sine or cosine of its own
    calls: set
    source: str  # without its own name

    @property
    def key(self):
        return f"{pathlib.PurePath(self.path).stem}.{self.name}"

    @property
    def says_so(self):
        return self.computes or SAYS_SO.search(self.name) is not None


def called(node):
    """The names that a class or function calls."""
    functions = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
    return {f.attr if isinstance(f, ast.Attribute) else f.id for f in functions if isinstance(f, (ast.Attribute, ast.Name))}


def rows_of(package, root, path):
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        calls = called(node)
        row = Row(package, str(path.relative_to(root)), node.name, bool(calls & TRIGONOMETRY), calls, re.sub(rf"\b{node.name}\b", "_", ast.unparse(node)))
        if row.says_so or (isinstance(node, ast.ClassDef) and EMBEDDER.search(node.name)):
            yield row


def find(package):
    root = pathlib.Path(importlib.import_module(package).__file__).parent
    patterns, left_out = SEARCHED[package]
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    return [row for path in paths if not left_out.search(f"/{path.relative_to(root)}") for row in rows_of(package, root, path)]


class Trace:
    """Notes which classes and functions of the packages run while a case is computed."""

    def __init__(self):
        self.ran = collections.defaultdict(set)  # (file, class or function) -> cases
        self.case = None

    def __call__(self, frame, event, _):
        # The body of a class runs where its module is imported, which says nothing.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED and ("/diffusers/" in frame.f_code.co_filename or "/timm/" in frame.f_code.co_filename):
            self.ran[frame.f_code.co_filename, frame.f_code.co_qualname.split(".")[0]].add(self.case)

    def watched(self, case):
        """The case, with its calls of upstream under watch."""

        def during(function):
            def call(*arguments):
                self.case = case.name
                sys.setprofile(self)
                try:
                    return function(*arguments)
                finally:
                    sys.setprofile(None)

            return call

        rotate = {k: during(f) for k, f in case.rotate.items()} if isinstance(case.rotate, dict) else case.rotate and during(case.rotate)
        return dataclasses.replace(case, compute=during(case.compute), rotate=rotate)

    def cases(self, row):
        return {case for (file, name), cases in self.ran.items() if name == row.name and file.endswith(f"/{row.package}/{row.path}") for case in cases}


def account(rows, trace):
    """Row -> (kind, what): kind is empty where nobody has accounted for the row."""
    found = {}
    for row in rows:
        if cases := trace.cases(row):
            found[row.package, row.key] = ("compared", ", ".join(sorted(cases)))
    same = {row.source: row.key for row in rows if (row.package, row.key) in found}
    for row in rows:
        at = (row.package, row.key)
        if at in found:
            continue
        reason = next((why for pattern, why in STAYS_OUT[row.package].items() if re.fullmatch(pattern, row.key)), None)
        if reason:
            found[at] = ("refused" if reason.startswith("refused") else "stays out", reason)
        elif row.source in same:
            found[at] = ("same source", same[row.source])
    right = {(row.path, row.name) for row in rows if found.get((row.package, row.key), ("",))[0] in ("compared", "same source")}
    wrong = {(row.path, row.name) for row in rows if row.says_so} - right
    for row in rows:
        if (row.package, row.key) in found or row.says_so or any((row.path, name) in wrong for name in row.calls):
            continue
        parts = sorted(row.calls & {name for _, name in right})
        found[row.package, row.key] = ("made of", ", ".join(parts)) if parts else ("no sine", "learned or a projection")
    assert len({row.key for row in rows}) == len(rows), "two rows have one name"
    return {(row.package, row.key): found.get((row.package, row.key), ("", "")) for row in rows}


def table(trace):
    """Package -> its version and what every row is: what configs/walk.json keeps, and docs/models.md shows."""
    found = {}
    for package in SEARCHED:
        accounts = account(find(package), trace)
        rows = {key: list(accounts[package, key]) for _, key in sorted(accounts)}
        found[package] = {"version": importlib.import_module(package).__version__, "rows": rows}
    return found


def written(found):
    """One row a line, so that a changed row is a changed line."""
    parts = []
    for package, part in found.items():
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(row)}" for key, row in part["rows"].items())
        parts.append(f'{json.dumps(package)}: {{"version": {json.dumps(part["version"])}, "rows": {{\n{lines}\n}}}}')
    return "{" + ",\n".join(parts) + "}\n"


def sums(part):
    """One line: how many rows are what."""
    count = collections.Counter(kind for kind, _ in part["rows"].values())
    right = count["compared"] + count["same source"]
    return (
        f"{len(part['rows'])} classes and functions: {right} right under a stated spec, {count['made of']} made of these, "
        f"{count['no sine']} without a sine, {count['stays out']} no rotation and no encoding, wrong 0, "
        f"{count['refused']} refused with a remedy, unaccounted {count['']}"
    )


def report(trace, update):
    """Prints the sums; returns what nobody has accounted for, and what is not as the page has it."""
    found, failures = table(trace), []
    for package, part in found.items():
        print(f"{package} {part['version']}: {sums(part)}")
        failures += [f"{package} {key}: found in its source; add a case that runs it, or a reason to stays_out.py" for key, (kind, _) in part["rows"].items() if not kind]
        left = [key for key, (kind, _) in part["rows"].items() if kind in ("stays out", "refused")]
        stale = [p for p in STAYS_OUT[package] if not any(re.fullmatch(p, key) for key in left)]
        failures += [f"stays_out.py: {pattern} of {package} is gone, or a case runs it" for pattern in stale]
    if update:
        TABLE.write_text(written(found))
    elif not TABLE.exists() or TABLE.read_text() != written(found):
        failures.append(f"{TABLE.name}: upstream or the cases changed; run ./dev conformance --update, then tests/repo/models_page.py --fix")
    return failures
