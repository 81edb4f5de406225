# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/python.md run, and print what their comments say."""

import importlib.util
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/python.md"


def test_the_programs_of_the_page_run_in_order(capsys):
    page = re.sub(r"<!-- not run: [^\n]* -->\n```python\n.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    blocks = re.findall(r"(?:<!-- needs: (\w+) -->\n)?```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 5
    names = {}
    for needs, block in blocks:
        if needs and importlib.util.find_spec(needs) is None:
            continue
        exec(compile(block, str(PAGE), "exec"), names)
        printed = capsys.readouterr().out.split("\n")
        for wanted in re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE):
            assert wanted in printed
    missing = [needs for needs, _ in blocks if needs and importlib.util.find_spec(needs) is None]
    if missing:
        pytest.skip(f"the programs that need {', '.join(missing)} did not run: not installed")


def test_the_program_of_the_first_page_runs(capsys):
    block = re.search(r"```python\n(import numpy as np\n.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    exec(block, {})
    assert capsys.readouterr().out.strip() == re.search(r"print\(.*\)  # (.*)", block)[1]
