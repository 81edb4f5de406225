# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/python.md run, and print what their comments say."""

import importlib.util
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/python.md"


def test_the_programs_of_the_page_run_in_order(capsys):
    blocks = re.findall(r"(?:<!-- needs: (\w+) -->\n)?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 5
    names = {}
    for needs, block in blocks:
        if needs and importlib.util.find_spec(needs) is None:
            continue
        exec(compile(block, str(PAGE), "exec"), names)
        printed = capsys.readouterr().out.split("\n")
        for wanted in re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE):
            assert wanted in printed
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the programs that need torch did not run: it is not installed")
