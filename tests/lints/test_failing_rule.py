"""A rule that raises ends neither the other rules nor the program."""

import json
import subprocess
import sys
from pathlib import Path

FAILING = """
from tunec.__main__ import main
from tunec.compiler.lints import index
from tunec.compiler.lints.rule import rule

@rule("error", "parse", consumers=())
def few_numbers(run):
    yield from ()
    raise ZeroDivisionError("no number")

known = index.rules_for
index.rules_for = lambda kinds, keys: (few_numbers, *known(kinds, keys))
from tunec.compiler.lints import lint
lint.rules_for = index.rules_for
import sys
sys.exit(main())
"""


def test_the_rest_is_checked_and_the_exit_code_is_that_of_a_bug(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 7}}', "utf-8")
    command = [sys.executable, "-c", FAILING, "lint", "ds.json", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 70, done.stderr
    found = json.loads(done.stdout)
    (failed,) = (each for each in found if each["id"] == "few-numbers")
    assert failed["message"] == "tunec failed to check this: ZeroDivisionError: no number"
    assert failed["severity"] == "warning"
    assert any("stage" in each["message"] for each in found)
    assert "Traceback" not in done.stderr
