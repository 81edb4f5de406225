# SPDX-License-Identifier: Apache-2.0
"""Checks every convention. `conventions.py [--reuse]`: --reuse uses the results of an earlier
`./dev test`."""

import json
import subprocess
import sys
import tempfile

from acceptance import ROOT, Fail, Skip, TestRun, command, promised
import acceptance

TOPIC = "conventions"
CLI = ROOT / "build/release/client/cli/phasor"
# What to give a preset that leaves a field open.
OPEN_FIELDS = {
    "dim": 64,
    "head_dim": 64,
    "axes_dim": "16,24,24",
    "sequence_length": 4096,
    "inv_freq": "1,0.5,0.25,0.125",
    "frequency_heads": 1,
    "phase": "0,0.1,0.2,0.3",
}


def tested():
    """./dev test passes"""
    if "--reuse" not in sys.argv:
        subprocess.run(["./dev", "test"], cwd=ROOT, check=False)
    run = any_run()
    if run.status != 0:
        raise Fail("failed: " + ", ".join(n for n, c in run.cases.items() if c.get("status") == "fail"))
    return f"{run.seconds} s, {len(run.cases)} tests"


def any_run():
    for mode in ("default", "full", "quick"):
        try:
            return TestRun(mode)
        except Skip:
            pass
    raise Skip("no result of ./dev test here")


def of_tests(promise, pattern):
    return promised(promise, lambda: any_run().passed(pattern))


def every_class_of_diffusers_and_timm():
    """Every class and function of diffusers and timm that concerns positions is accounted for, none wrong"""
    walked = json.loads((ROOT / "tests/conformance/configs/walk.json").read_text())
    sums = []
    for package, part in walked.items():
        kinds = [kind for kind, _ in part["rows"].values()]
        if "" in kinds:
            raise Fail(f"{package}: {kinds.count('')} rows of which nothing is known")
        silent = [key for key, (kind, what) in part["rows"].items() if kind == "refused" and ";" not in what]
        if silent:
            raise Fail(f"{package}: refused without a remedy: {', '.join(silent)}")
        cases = {name for kind, what in part["rows"].values() if kind == "compared" for name in what.split(", ")}
        missing = cases - golden_cases()
        if missing:
            raise Fail(f"{package}: no golden values of {', '.join(sorted(missing))}")
        right = kinds.count("compared") + kinds.count("same source")
        idle = kinds.count("no sine") + kinds.count("stays out")
        sums.append(f"{package} {part['version']}: {len(kinds)} found, {right} right, {kinds.count('made of')} made of these, {idle} neither rotate nor encode, {kinds.count('refused')} refused with a remedy")
    any_run().passed(r"conformance_test")
    return "; ".join(sums)


def golden_cases():
    return {case["name"] for path in (ROOT / "tests/conformance/golden").glob("*.json") for case in json.loads(path.read_text())}


def right_from_the_file_alone():
    """Of transformers' model_types at least 95 % are read from the file alone, the rest with a stated hint"""
    table = json.loads((ROOT / "kernels/spec/models.json").read_text())
    rows = [row for row in table["models"] if row["model_type"] not in table["parts"]]
    hinted = [row["model_type"] for row in rows if "unread" in row]
    found = len(rows) + len(table["parts"])
    if len(hinted) * 20 > found:
        raise Fail(f"{len(hinted)} of {found} need a hint: {', '.join(hinted)}")
    return f"transformers {table['transformers']}: {found - len(hinted)} of {found}; with pairing: {', '.join(hinted)}"


def live_conformance():
    """`./dev conformance`: upstream's own code, run now, and Phasor: wrong 0 for transformers, diffusers and timm"""
    path = ROOT / "build/conformance/conformance.txt"
    if not path.exists():
        raise Skip("./dev conformance has not run here")
    lines = path.read_text().splitlines()
    failed = [line for line in lines if line.startswith("FAIL")]
    if failed:
        raise Fail("; ".join(failed))
    sums = [line for line in lines if ", wrong " in line]
    wrong = [line for line in sums if ", wrong 0," not in line]
    if wrong or len(sums) != 3:
        raise Fail("; ".join(wrong) or f"{len(sums)} sums instead of three")
    return "; ".join(sums)


def rotary_classes():
    """`./dev conformance` prints a row for every rotary class that transformers' source has, none unaccounted for"""
    path = ROOT / "build/conformance/conformance.txt"
    if not path.exists():
        raise Skip("./dev conformance has not run here")
    lines = path.read_text().splitlines()
    total = [line for line in lines if " rotary classes, a row for each: " in line]
    if not total or not total[0].endswith("unaccounted 0"):
        raise Fail(total[0] if total else "no sum of them")
    rows = sum(line.startswith("class ") for line in lines)
    if f": {rows} rotary classes," not in total[0]:
        raise Fail(f"{rows} rows; {total[0]}")
    return total[0]


def mutations():
    """Files with one key changed are read as upstream computes or refused, for every key of every class"""
    path = ROOT / "build/conformance/conformance.txt"
    if not path.exists():
        raise Skip("./dev conformance has not run here")
    read = [line for line in path.read_text().splitlines() if line.endswith(" refused") and "configurations read" in line]
    if not read:
        raise Fail("./dev conformance says nothing of them")
    return read[0]


def whole_models():
    """Every layer of whole models rotates as upstream's does, also where a key says something about single layers"""
    cases = json.loads((ROOT / "tests/conformance/configs/layers.json").read_text())
    run = [case for case in cases if "layers" in case]
    any_run().passed(r"conformance_models_test")
    return f"{len(run)} files, {sum(len(case['layers']) for case in run)} layers; {len(cases) - len(run)} files do not run alone"


def published_configurations():
    """200 published configurations are read as transformers reads them, or are listed with a reason"""
    cases = json.loads((ROOT / "tests/conformance/configs/published.json").read_text())
    if len(cases) < 200:
        raise Fail(f"{len(cases)} configurations")
    nameless = [case["name"] for case in cases if not case.get("from") or not case.get("path")]
    if nameless:
        raise Fail("no source: " + ", ".join(nameless))
    any_run().passed(r"conformance_published_test")
    different = [case["name"] for case in cases if case.get("differs") or case.get("refused")]
    return f"{len(cases)}, of classes that transformers has {sum('kinds' in case for case in cases)}; with a reason: {', '.join(different)}"


def presets_of_models():
    """Presets that bear a model's name agree with published copies, or say what they have instead"""
    sources = json.loads((ROOT / "tests/conformance/configs/preset_sources.json").read_text())
    copies = sum(len(entry.get("published", [entry])) for entry in sources)
    silent = [entry["preset"] for entry in sources if entry.get("published") == [] and not entry.get("why")]
    if silent:
        raise Fail("neither a copy nor a reason: " + ", ".join(silent))
    any_run().passed(r"conformance_preset_sources_test")
    compared = {entry["preset"] for entry in sources if entry.get("published", [entry])}
    return f"{len(compared)} presets and {copies} copies; without a copy: {len({e['preset'] for e in sources} - compared)}"


def presets():
    return json.loads(command(CLI, "presets", "--json", timeout=60))


def open_flags(preset):
    flags = []
    for field in preset.get("required_fields", []):
        if field not in OPEN_FIELDS:
            raise Fail(f"{preset['name']} leaves {field} open, which this list does not know")
        value = OPEN_FIELDS[field]
        if field == "dim" and "inv_freq" in preset["required_fields"]:
            value = 4 if preset["spec"].get("order") == "COS_ONLY" else 8
        flags += [f"--{field.replace('_', '-')}", str(value)]
    return flags


def every_preset_has_a_source():
    """Every preset says where it is from, and unverified ones say so"""
    listed = presets()
    nameless = [p["name"] for p in listed if not p.get("source")]
    if nameless:
        raise Fail("no source: " + ", ".join(nameless))
    unverified = [p["name"] for p in listed if not p.get("verified", False)]
    return f"{len(listed)} presets, unverified: {', '.join(unverified) or 'none'}"


def computed(arguments):
    """Fingerprint and values of `phasor encode --json`."""
    answer = json.loads(command(CLI, "encode", "--json", *arguments, timeout=60))
    return answer["info"]["spec_fingerprint"], answer["rows"]["values"]


def sample(resolved):
    """What to encode with a resolved spec: a few positions, tables if it rotates."""
    spec = resolved["spec"]
    axes = spec.get("axes", 1)
    tokens = ["/".join(str(p + axis) for axis in range(axes)) for p in (0, 1, 77, 4095)]
    output = ["--form", "cos-sin"] if spec["kind"] == "ROTARY" else []
    return ["--positions", ",".join(tokens), *output]


def round_trip():
    """resolve --json of any preset, fed back as a full spec, gives the same bytes and fingerprint"""
    done, different = 0, []
    for preset in presets():
        by_name = ["--preset", preset["name"], *open_flags(preset)]
        resolved = json.loads(command(CLI, "resolve", "--json", *by_name, timeout=60))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(resolved["spec"], file)
            file.flush()
            again = computed(["--spec", file.name, *sample(resolved)])
        if again != computed([*by_name, *sample(resolved)]) or again[0] != resolved["info"]["spec_fingerprint"]:
            different.append(preset["name"])
        done += 1
    if different:
        raise Fail("differ: " + ", ".join(different))
    return f"{done} presets"


WRONG = [
    # what is wrong, arguments, part of the message
    ("unknown preset", ["--preset", "llama-99"], "preset"),
    ("odd rotary_dim", ["--preset", "llama-2", "--rotary-dim", "63"], "rotary_dim"),
    ("odd dim", ["--preset", "transformer", "--dim", "63"], "dim"),
    ("infinite base", ["--preset", "llama-2", "--rope-theta", "inf"], "rope_theta"),
]
LLAMA3 = {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192}
WRONG_SPECS = [
    ("unknown key", {"rope_thta": 1e4}, "rope_thta"),
    ("factor 0", {"rope_scaling": {"linear": {"factor": 0}}}, "factor"),
    ("low_freq_factor > high_freq_factor", {"rope_scaling": {"llama3": {**LLAMA3, "low_freq_factor": 8}}}, "low_freq_factor"),
    ("no original_max_position_embeddings", {"rope_scaling": {"yarn": {"factor": 4}}}, "original_max_position_embeddings"),
    ("sections that do not sum", {"axes": 3, "axis_rule": "MROPE_CHUNKED", "mrope_section": [16, 24, 23]}, "mrope_section"),
    ("short factor list", {"rope_scaling": {"longrope": {"short_factor": [1, 1], "long_factor": [1, 1], "original_max_position_embeddings": 4096}}, "sequence_length": 4096}, "short_factor"),
]


def npy(path, rows, columns):
    """An .npy of float32 zeros."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(4 * rows * columns))


def refused(arguments, part):
    done = subprocess.run([CLI, *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        raise Fail(f"accepted: {' '.join(arguments)}")
    if part not in done.stderr or "Traceback" in done.stderr or done.returncode < 0:
        raise Fail(f"{' '.join(arguments)} says only: {done.stderr.strip()}")


def wrong_use():
    """Wrong use is answered with the field that is wrong"""
    for _, arguments, part in WRONG:
        refused(["resolve", *arguments], part)
    for _, fields, part in WRONG_SPECS:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"preset": "llama-2", **fields}, file)
            file.flush()
            refused(["resolve", "--spec", file.name], part)
    with tempfile.NamedTemporaryFile(suffix=".npy") as table:
        for rows, heads in ((31, 8), (32, 4)):
            npy(table.name, rows, heads)
            bias = ["bias", "--preset", "t5", "--heads", "8", "--query-range", "0:4", "--key-range", "0:4"]
            refused([*bias, "--table-file", table.name], "table_values")
    return ", ".join([what for what, *_ in WRONG + WRONG_SPECS] + ["table too short", "head count mismatch"])


def plots():
    """phasor plot draws values and errors as PNG"""
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in (("values", ["--preset", "transformer", "--dim", "64", "--range", "0:64"]), ("error", ["--preset", "llama-3", "--error"])):
            path = f"{folder}/{name}.png"
            command(CLI, "plot", *arguments, "--output", path, timeout=120)
            with open(path, "rb") as file:
                if file.read(8) != b"\x89PNG\r\n\x1a\n":
                    raise Fail(f"{name} is no PNG")
    return "values, error"


CHECKS = [
    tested,
    of_tests("Every convention and preset agrees with upstream and with 300-bit arithmetic", r"conformance_test"),
    every_preset_has_a_source,
    round_trip,
    wrong_use,
    of_tests("A model's config.json gives upstream's frequencies", r"config_json_test"),
    of_tests("Every model_type of transformers means what its attention layer computes", r"conformance_models_test"),
    of_tests("Every layer of a model in one answer", r"(model_layers|config_section|model_details|convert_model)_test"),
    right_from_the_file_alone,
    live_conformance,
    rotary_classes,
    mutations,
    whole_models,
    published_configurations,
    every_class_of_diffusers_and_timm,
    of_tests("Published configurations mean what transformers computes", r"conformance_published_test"),
    presets_of_models,
    of_tests("The models' attention layers rotate to the same bits in bf16 and f16", r"conformance_model_parity_test"),
    of_tests("Parity arithmetic: upstream's bits where they are defined", r"parity_\w*test|parity_test"),
    of_tests("Cached keys: 8 moves of a bf16 key within 0.0048", r"cached_keys_test"),
    of_tests("Learned tables and attention biases", r"(\w*bias\w*|\w*table\w*)_test"),
    plots,
]

if __name__ == "__main__":
    acceptance.run(TOPIC, CHECKS)
