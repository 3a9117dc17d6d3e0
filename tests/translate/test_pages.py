"""The examples on the pages of what only `tunec translate` says."""

import json
import shlex

import pytest
from tests.diagnostics.test_pages import BLOCK, OF_TRANSLATE

from tunec.__main__ import main
from tunec.compiler.diagnostics.codes import page


@pytest.mark.parametrize("id", sorted(OF_TRANSLATE))
def test_example_says_it_and_mending_ends_it(id, tmp_path, monkeypatch, capsys):
    blocks = BLOCK.findall(page(id))
    for _, info, text in blocks:
        if "." in info:
            (tmp_path / info).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    commands = {info: text for language, info, text in blocks if language == "console"}
    assert id in ids_of(commands["fails"], monkeypatch, capsys)
    mended = ids_of(commands["fixed"], monkeypatch, capsys)
    assert id not in mended
    assert not [each for each, severity in mended.items() if severity == "error"]


def ids_of(command, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [*shlex.split(command), "--format", "json"])
    main()
    found = json.loads(capsys.readouterr().out)["diagnostics"]
    return {each["id"]: each["severity"] for each in found}
