"""Notebooks as configs: their cells are one script, what they install and start counts too."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lints.lint_asking import Answer, lint

from tunec.compiler.frontend.notebook import place_in, read_notebook
from tunec.schemas.source import Span

BOTH = (
    "from transformers import TrainingArguments\nargs = TrainingArguments('out', fp16=True, {})\n"
)


def _cell(text: str, kind: str = "code") -> dict[str, Any]:
    rest = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True), **rest}


def _notebook(*cells: str | dict[str, Any], indent: int | None = 1) -> str:
    found = [_cell(each) if isinstance(each, str) else each for each in cells]
    whole = {"cells": found, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=indent)


def _asked(folder: Path, text: str, *arguments: str) -> Answer:
    return lint(folder, {"train.ipynb": text}, [".", *arguments])


def _notes(answer: Answer, rule: str) -> list[str]:
    return [note for each in answer.findings if each["id"] == rule for note in each["notes"]]


@pytest.mark.parametrize("indent", [None, 1, 4])
def test_names_go_from_cell_to_cell_and_the_place_is_in_the_file(
    tmp_path: Path, indent: int | None
) -> None:
    text = _notebook(
        _cell("# Training\n", "markdown"),
        'from transformers import TrainingArguments\nname = "a \\"b\\" é"\nhalf = True\n',
        'args = TrainingArguments(\n    "out", bf16=half, fp16=True\n)\n',
        indent=indent,
    )
    (found,) = [each for each in _asked(tmp_path, text).findings if each["id"] == "fp16-and-bf16"]
    for label in found["labels"]:
        line = text.splitlines()[label["line"] - 1]
        begins = label["column"] - 1
        assert line[begins:].startswith(("half", "True", "fp16", "bf16")), line[begins:]
    assert "cell 3, line 2" in found["notes"]


@pytest.mark.parametrize(
    "cell",
    [
        "!pip install -q 'transformers==4.40.2'",
        "%pip install \\\n  transformers==4.40.2",
        "%%bash\npip install transformers==4.40.2",
        "x = 1\n!pip install transformers==4.40.2",
    ],
)
def test_what_a_cell_installs_is_the_release(tmp_path: Path, cell: str) -> None:
    asks = BOTH.format("eval_strategy='no'")
    answer = _asked(tmp_path, _notebook(cell, asks))
    assert "key-of-another-release" in answer.names
    assert any("transformers 4.40.2" in each for each in _notes(answer, "key-of-another-release"))


def test_what_a_notebook_installs_holds_for_no_other_file(tmp_path: Path) -> None:
    asks = BOTH.format("eval_strategy='no'")
    other = _notebook("!pip install transformers==4.40.2", "x = 1\n")
    answer = lint(tmp_path, {"train.ipynb": _notebook(asks), "other.ipynb": other}, ["."])
    assert "key-of-another-release" not in answer.names


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\n",
        "%%time\nx = 1\n",
        "files = !ls *.json\n",
        "if True:\n    !ls\n",
        "TrainingArguments?\n",
        "?TrainingArguments\n",
        "%%html\n<b>no Python</b>\n",
        "!echo a \\\n  b\n",
        "await later()\n",
    ],
)
def test_what_is_no_python_is_passed_over(tmp_path: Path, cell: str) -> None:
    answer = _asked(tmp_path, _notebook(cell, BOTH.format("bf16=True")))
    assert "fp16-and-bf16" in answer.names
    assert "E0104" not in answer.names


def test_a_broken_cell_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    text = _notebook("x = (\n", BOTH.format("bf16=True"))
    answer = _asked(tmp_path, text)
    assert {"E0104", "fp16-and-bf16"} <= set(answer.names)


@pytest.mark.parametrize(
    "cell",
    ["!{}", "%%bash\n{}", "%%sh\nexport A=1\n{}", "if True:\n    !{}"],
    ids=["line", "bash", "sh", "block"],
)
def test_what_a_cell_starts_is_a_launch(tmp_path: Path, cell: str) -> None:
    command = "torchrun --nproc_per_node 2 run_clm.py --output_dir o --bf16 True --fp16 True"
    answer = _asked(tmp_path, _notebook(cell.format(command)))
    assert "fp16-and-bf16" in answer.names


def test_nothing_is_edited_within_a_notebook(tmp_path: Path) -> None:
    asks = BOTH.format("evaluation_strategy='no'")
    text = _notebook("!pip install transformers==5.23.0", asks)
    answer = _asked(tmp_path, text)
    assert "key-of-another-release" in answer.names
    assert all(each.get("fix") is None for each in answer.findings)


def test_pictures_of_a_large_notebook_are_passed_over(tmp_path: Path) -> None:
    cell = _cell(BOTH.format("bf16=True"))
    cell["outputs"] = [{"data": {"image/png": "A" * 2_000_000}, "output_type": "display_data"}]
    assert _asked(tmp_path, _notebook(cell)).names == ["fp16-and-bf16"]


def test_the_place_in_a_notebook_is_counted_as_its_readers_do() -> None:
    text = _notebook(_cell("a\n", "markdown"), "x = 1\ny = 2\n")
    line = 1 + next(n for n, each in enumerate(text.splitlines()) if "y = 2" in each)
    assert place_in(text, Span("a.ipynb", line, 6, line, 7)) == (2, 2)
    assert place_in(text, Span("a.ipynb", 1, 1, 1, 2)) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["cells", "cell_type", "source", "x"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_JSON)
def test_whatever_json_is_a_notebook_without_a_traceback(data: Any) -> None:
    notebook, faults = read_notebook(json.dumps(data), "a.ipynb")
    assert (notebook is None) == bool(faults)


@given(st.lists(st.text(max_size=40), max_size=4))
def test_every_character_of_a_cell_has_its_place(cells: list[str]) -> None:
    text = _notebook(*cells)
    notebook, _ = read_notebook(text, "a.ipynb")
    lines = text.split("\n")
    for each in notebook.origin.lines if notebook is not None else ():
        assert len(each.places) == len(each.text) + 1
        for letter, (line, column) in zip(each.text, each.places, strict=False):
            shown = lines[line - 1][column - 1]
            assert shown in (letter, "\\")


def test_a_long_line_of_code_is_read_and_results_move_no_place(tmp_path: Path) -> None:
    results = {"data": {"text/html": "<td>x</td>" * 200, "image/png": "iVBORw0KG" * 99}}
    note = {"cell_type": "markdown", "metadata": {}, "source": ["see"], "attachments": results}
    shown = _cell("print(1)\n") | {"outputs": [results, results]}
    prompt = ", ".join(f"'{each}'" for each in range(400))
    call = f"args = TrainingArguments('out', label_names=[{prompt}], fp16=True, bf16=True)\n"
    whole = _notebook(
        note, shown, f"from transformers import TrainingArguments\n{call}", indent=None
    )
    (found,) = [each for each in _asked(tmp_path, whole).findings if each["id"] == "fp16-and-bf16"]
    assert "cell 3, line 2" in found["notes"]
    (label, *_) = found["labels"]
    assert whole[label["column"] - 1 :].startswith(("fp16", "bf16", "True"))
