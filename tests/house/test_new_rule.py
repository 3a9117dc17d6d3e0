"""`just new-rule` tells the neighbours of a rule, and leaves nothing for its author to guess."""

import runpy
from pathlib import Path

import pytest
from docs.new_rule import TO_WRITE, main, near, unwritten

from tunec.compiler.lints.index import rule_names
from tunec.compiler.lints.rule import Rule


@pytest.fixture
def house(tmp_path) -> Path:
    """A house with a folder of rules for one subject and for one target."""
    for folder in ("compiler/lints/checks/training_step", "targets/llama_cookbook/rules"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    return tmp_path


def test_a_rule_that_is_there_is_refused(capsys):
    assert main(["batch-not-divisible"]) == 1
    assert capsys.readouterr().err.startswith("there is a rule batch-not-divisible: ")


@pytest.mark.parametrize("name", ["batch", "Batch-Not", "batch_not_divisible", "a-"])
def test_a_name_is_words_with_hyphens(name, capsys):
    assert main([name]) == 1
    assert "name the bad thing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says_it"),
    [
        ("fp16-beside-bf16", "fp16-and-bf16"),
        ("batch-size-not-divisible-by-world", "batch-not-divisible"),
        ("half-precision-on-cpu", "fp16-on-cpu"),
        ("accumulation-said-twice", "accumulation-given-twice"),
    ],
)
def test_the_rule_that_says_it_already_is_near(name, says_it):
    assert says_it in [each.name for each in near(name)]


def test_a_rule_that_reads_the_key_is_near_whatever_it_is_called(capsys):
    assert main(["norms-that-vanish", "--when", "deepspeed:gradient_clipping<0"]) == 0
    told = capsys.readouterr().out
    assert "  deepspeed-and-trainer-differ: " in told
    assert "reads deepspeed:gradient_clipping, too" in told


def test_without_a_folder_nothing_is_written(house, capsys):
    assert main(["clipping-below-zero"], house) == 0
    assert "--in and --when" in capsys.readouterr().out
    assert not list(house.rglob("*clipping*"))


def test_an_unknown_folder_is_refused_with_those_there_are(house, capsys):
    asked = ["clipping-below-zero", "--in", "bach", "--when", "trainer:x"]
    assert main(asked, house) == 1
    assert "there are llama_cookbook, training_step" in capsys.readouterr().err


def test_both_files_are_written_and_say_what_is_left(house, capsys):
    when = "deepspeed:gradient_clipping<0"
    asked = ["--in", "llama-cookbook", "--when", when, "--severity", "error"]
    assert main(["clipping-below-zero", *asked, "--consequence", "init"], house) == 0
    folder = house / "targets/llama_cookbook/rules"
    page = (folder / "clipping-below-zero.md").read_text("utf-8")
    assert "`ds_config.json`" in page
    made = runpy.run_path(str(folder / "clipping_below_zero.py"))["clipping_below_zero"]
    assert isinstance(made, Rule)
    assert (made.name, made.severity, made.consequence) == ("clipping-below-zero", "error", "init")
    assert made.reads == ("deepspeed:gradient_clipping",)
    left = list(unwritten(house))
    text = page + (folder / "clipping_below_zero.py").read_text("utf-8")
    assert len(left) == text.count(TO_WRITE) > 8
    assert "what is wrong, in a few words" in [what for _, what in left]
    assert "just test tests/lints -k clipping-below-zero" in capsys.readouterr().out


def test_a_rule_joins_the_module_of_its_nearest_neighbour(house, capsys):
    folder = house / "targets/llama_cookbook/rules"
    far = 'from tunec.compiler.lints.rule import rule\n\n@rule(\n    "fp16-on-cpu",\n)\n'
    near_by = (
        '"""Batches."""\n\nfrom typing import Final\n\nX = rows(\n    "batch-not-divisible",\n)\n'
    )
    (folder / "half.py").write_text(far, "utf-8")
    (folder / "batches.py").write_text(near_by, "utf-8")
    (folder / "crowded.py").write_text('"batch-not-divisible",\n' * 400, "utf-8")
    asked = ["--in", "llama-cookbook", "--when", "trainer:per_device_train_batch_size<0"]
    assert main(["batch-not-positive", *asked], house) == 0
    told = capsys.readouterr().out
    assert "joined: targets/llama_cookbook/rules/batches.py" in told
    text = (folder / "batches.py").read_text("utf-8")
    assert text.startswith(
        '"""Batches."""\n\nfrom tunec.compiler.lints.rows import Row, rows\nfrom typing'
    )
    assert text.index('"batch-not-divisible"') < text.index("batch_not_positive = rows(")
    assert (folder / "half.py").read_text("utf-8") == far
    assert not (folder / "batch_not_positive.py").exists()


def test_nothing_is_left_in_the_rules_that_there_are():
    assert list(unwritten()) == []
    assert len(rule_names()) > 100
