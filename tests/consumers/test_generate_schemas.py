"""The generator: writes what the releases say, finds what is stale, says when it could not look."""

import json
from pathlib import Path
from typing import Any

import pytest

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.consumers.sets import ConsumerSet
from tunec.targets import generate_schemas
from tunec.targets.generate_schemas import ConsumerAnswers, main


def schema(consumer: str, *properties: str) -> dict[str, Any]:
    return {
        "x-consumer": consumer,
        "title": consumer,
        "properties": {each: {} for each in properties},
    }


def release(version: str, *properties: str) -> ConsumerAnswers:
    """A transformers release whose training arguments have these properties, and nothing else."""
    answers: dict[str, Any] = {"automatic": ["train_batch_size"]}
    for name in generate_schemas.STEMS:
        answers[f"schema {name}"] = None
        answers[f"defaults {name}"] = {}
    answers["schema TrainingArguments"] = schema(f"transformers=={version}", *properties)
    return ConsumerAnswers(ConsumerSet("transformers", version), answers)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    minor = {"schema": schema("deepspeed==0.16.9"), "defaults": {"gradient_clipping": 0.0}}
    told = [ConsumerAnswers(ConsumerSet("deepspeed", "0.16.9"), minor), release("1.0.0", "a")]
    told += [release("1.1.0", "a"), release("1.2.0", "a", "b")]
    monkeypatch.setattr(generate_schemas, "FOLDER", tmp_path)
    monkeypatch.setattr(generate_schemas, "tell_all", lambda: told)
    return tmp_path


def test_writes_one_file_a_change_and_an_index_of_all(folder):
    assert main([]) == 0
    names = {path.name for path in (folder / "huggingface").glob("training_arguments-*.json")}
    assert names == {
        "training_arguments-1.0.0.json",
        "training_arguments-1.2.0.json",
        "training_arguments-defaults.json",
    }
    index = json.loads((folder / "huggingface" / "index.json").read_text())
    assert index["training_arguments"] == {
        "1.0.0": "training_arguments-1.0.0.json",
        "1.1.0": "training_arguments-1.0.0.json",
        "1.2.0": "training_arguments-1.2.0.json",
    }
    assert json.loads((folder / "deepspeed" / "defaults.json").read_text()) == {
        "0.16": {"gradient_clipping": 0.0}
    }


def test_check_passes_on_what_was_written_and_writes_nothing(folder):
    assert main(["--check"]) == 1
    assert list(folder.iterdir()) == []
    main([])
    assert main(["--check"]) == 0


def test_check_finds_a_changed_file(folder, capsys):
    main([])
    (folder / "deepspeed" / "0.16.json").write_text("{}\n")
    assert main(["--check"]) == 1
    assert "stale: deepspeed/0.16.json" in capsys.readouterr().err


def test_a_file_that_nobody_writes_any_more_is_stale_then_gone(folder):
    main([])
    left = folder / "deepspeed" / "0.13.json"
    left.write_text("{}\n")
    assert main(["--check"]) == 1
    main([])
    assert not left.exists()


def test_says_when_it_could_not_look(monkeypatch, capsys):
    def refuse() -> list[ConsumerAnswers]:
        raise EnvironmentUnavailable("deepspeed==0.16.9", "no network")

    monkeypatch.setattr(generate_schemas, "tell_all", refuse)
    assert main(["--check"]) == 2
    assert "not checked: deepspeed==0.16.9 cannot be had: no network" in capsys.readouterr().err
