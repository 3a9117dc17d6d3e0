"""The pages of verify's diagnostics: their examples, before the real programs."""

import json
import re

import pytest

from tunec.compiler.cli.main import run
from tunec.compiler.diagnostics.codes import page
from tunec.targets.registry import REGISTRY

BLOCK = re.compile(r"^```(\w+) (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {
    "E1001": "launch/launch.sh",
    "E1002": "launch/launch.sh",
    "E1003": "slurm/train.sbatch",
    "beyond-the-plan": "huggingface/adapter_config.json",
}

UNASKED = {"E1003": ("--time-limit", "0.000001", "--allow-unchecked")}
"""What is told where no program can be asked: no process starts in a millionth of a second."""


def verified(id, kind, folder, capsys):
    """The ids of what verify says of a compiled directory with a page's file in it."""
    blocks = {(language, info): text for language, info, text in BLOCK.findall(page(id))}
    spec, out = folder / "spec.yaml", folder / "out"
    spec.write_text(blocks["yaml", "spec"])
    assert run(["compile", str(spec), "-o", str(out)], REGISTRY, "0") == 0
    (language,) = [language for language, info in blocks if info == kind]
    (out / FILES[id]).write_text(blocks[language, kind])
    capsys.readouterr()
    asked = ["verify", str(out), "--spec", str(spec), "--format", "json", *UNASKED.get(id, ())]
    code = run(asked, REGISTRY, "0")
    found = json.loads(capsys.readouterr().out)
    if id not in UNASKED and any(each["status"] == "unchecked" for each in found["checks"]):
        pytest.skip(f"not checked: {found['checks']}")
    return code, {each["id"] for each in found["diagnostics"]}


@pytest.mark.parametrize("id", FILES)
def test_the_example_shows_it_and_mending_ends_it(id, tmp_path, capsys):
    code, said = verified(id, "fails", tmp_path, capsys)
    assert id in said
    assert bool(code) == id.startswith("E")
    code, said = verified(id, "fixed", tmp_path, capsys)
    assert code == 0
    assert id not in said
