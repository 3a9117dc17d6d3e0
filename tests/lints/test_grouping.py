"""Files of one run are read together, whatever lies beside; choices never contradict each other."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.lints import parses
from tunec.compiler.lints.grouping import TRAINING
from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.lints.lint import Linted, lint_files
from tunec.targets.registry import TARGETS

DIFFER = "deepspeed-and-trainer-differ"
_ARGUMENTS = "output_dir: out\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-4\n"
_SFT = f"{_ARGUMENTS}model_name_or_path: meta-llama/Llama-3.1-8B\npacking: true\nmax_length: 512\n"
_FLAGS = "deepspeed --num_gpus 8 train.py --output_dir out --learning_rate 1e-4"


def _engine(accumulation: int, stage: int = 2) -> str:
    keys = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": accumulation}
    return json.dumps({**keys, "zero_optimization": {"stage": stage}})


def _with(text: str, accumulation: int, **others: object) -> str:
    rest = "".join(f"{key}: {value}\n" for key, value in others.items())
    return f"{text}gradient_accumulation_steps: {accumulation}\n{rest}"


def _read(folder: Path, files: dict[str, str]) -> Linted:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return lint_files([folder], TARGETS.readable())


def _differing(linted: Linted) -> set[frozenset[str]]:
    told = (each for each in linted.diagnostics if each.id == DIFFER)
    return {
        frozenset(Path(label.span.file).name for label in each.labels if label.span)
        for each in told
    }


_PAIR = {"ds.json": _engine(7), "training_args.yaml": _with(_ARGUMENTS, 4)}


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"sft.yaml": _with(_SFT, 7)},
        {"sft.yaml": _with(_SFT, 7), "dpo.yaml": _with(f"{_ARGUMENTS}beta: 0.1\n", 7)},
        {"run.sh": f"{_FLAGS} --gradient_accumulation_steps 7\n"},
        {f"chart_{at}.yaml": "image: a\nreplicas: 3\n" for at in range(9)},
        {"other/args.yaml": _with(_ARGUMENTS, 7), "other/sft.yaml": _with(_SFT, 7)},
    ],
)
def test_a_contradiction_is_found_whatever_lies_beside(
    beside: dict[str, str], tmp_path: Path
) -> None:
    assert frozenset(_PAIR) in _differing(_read(tmp_path, {**_PAIR, **beside}))


def test_what_is_named_is_read_with_what_names_it(tmp_path: Path) -> None:
    """And with nothing else: the second file agrees with what it names."""
    named = {
        "z2.json": _engine(7),
        "z3.json": _engine(4, stage=3),
        "args.yaml": _with(_ARGUMENTS, 4, deepspeed="z2.json"),
        "sft.yaml": _with(_SFT, 4, deepspeed="z3.json"),
    }
    assert _differing(_read(tmp_path, named)) == {frozenset({"z2.json", "args.yaml"})}


def test_one_engine_serves_the_folders_around_it(tmp_path: Path) -> None:
    files = {
        "ds.json": _engine(7),
        "conf/args.yaml": _with(_ARGUMENTS, 4),
        "conf/sft.yaml": _with(_SFT, 7),
    }
    assert _differing(_read(tmp_path, files)) == {frozenset({"ds.json", "args.yaml"})}


def test_an_engine_far_away_serves_nobody(tmp_path: Path) -> None:
    """A repository of examples holds many a training that it is not for."""
    files = {"ds.json": _engine(7), "x/a/args.yaml": _with(_ARGUMENTS, 4)}
    files["x/b/args.yaml"] = _with(_ARGUMENTS, 2)
    assert not _differing(_read(tmp_path, files))


def test_one_engine_serves_nobody_where_others_name_theirs(tmp_path: Path) -> None:
    files = {
        "ds.json": _engine(7),
        "conf/args.yaml": _with(_ARGUMENTS, 4),
        "conf/sft.yaml": _with(_SFT, 7, deepspeed="own.json"),
        "conf/own.json": _engine(7),
    }
    assert not _differing(_read(tmp_path, files))


def test_engines_for_two_settings_are_each_for_arguments_that_agree(tmp_path: Path) -> None:
    """Four pairs can be made of two and two; of those that differ, each agrees with another one."""
    files = {
        "a.json": _engine(4),
        "b.json": _engine(8, stage=3),
        "a.yaml": _with(_ARGUMENTS, 4),
        "b.yaml": _with(_ARGUMENTS, 8),
    }
    linted = _read(tmp_path, files)
    assert len(linted.runs) == 4
    assert not _differing(linted)
    third = {"c.yaml": _with(_ARGUMENTS, 2)}
    expected = {frozenset({name, "c.yaml"}) for name in ("a.json", "b.json")}
    assert _differing(_read(tmp_path, third)) == expected


_TRAINERS = {
    "args.yaml": f"{_with(_ARGUMENTS, 4)}bf16: true\n",
    "sft.yaml": f"{_with(_SFT, 8)}fp16: true\n",
    "axolotl.yaml": (
        "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 1\noutput_dir: out\nbf16: true\n"
        "gradient_accumulation_steps: 2\ndatasets: [{path: a.jsonl, type: alpaca}]\n"
    ),
    "factory.yaml": (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\ndo_train: true\nfp16: true\n"
        "finetuning_type: lora\ndataset: a\ntemplate: llama3\noutput_dir: out\n"
        "per_device_train_batch_size: 4\n"
    ),
    "swift.yaml": (
        "model: meta-llama/Llama-3.1-8B\ntrain_type: lora\ndataset: [a.jsonl]\nbf16: true\n"
        "per_device_train_batch_size: 3\noutput_dir: out\n"
    ),
    "run.sh": f"{_FLAGS} --per_device_train_batch_size 16 --fp16 true\n",
}


@pytest.mark.parametrize("pair", list(combinations(_TRAINERS, 2)), ids=" and ".join)
def test_two_trainings_of_one_folder_do_not_concern_each_other(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    """What is found in both together is what is found in each alone."""
    alone = set()
    for name in pair:
        linted = _read(tmp_path / name, {f"x/{name}": _TRAINERS[name]})
        alone |= {(each.id, name, each.message) for each in linted.diagnostics}
    both = _read(tmp_path / "both", {f"x/{name}": _TRAINERS[name] for name in pair})
    assert {(e.id, Path(e.file).name, e.message) for e in both.diagnostics} == alone


def test_every_trainer_s_file_says_what_is_trained() -> None:
    """A new target's file is not taken for one that stands beside another trainer's."""
    trainers = [each for each in TARGETS.readable().values() if each.counting is not None]
    kinds = {kind_of(each, each.files[0]) for each in trainers} - {"deepspeed"}
    assert len(kinds) > 9
    assert kinds <= TRAINING | {"hf"}


def test_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many runs it is of; and what nobody knows is of none."""
    real, asked = parses.parse_text, list[str]()

    def counting(name: str, *told):  # type: ignore[no-untyped-def]
        asked.append(name)
        return real(name, *told)

    monkeypatch.setattr(parses, "parse_text", counting)
    files = {f"args_{at}.yaml": _with(_ARGUMENTS, at) for at in range(1, 6)}
    files |= {f"chart_{at}.yaml": "image: a\nreplicas: 3\n" for at in range(5)}
    linted = _read(tmp_path, {**files, "ds.json": _engine(7)})
    assert len(linted.runs) == 5
    assert sorted(Path(each).name for each in asked) == sorted({**files, "ds.json": ""})
    assert len(linted.passed_over) == 5


def test_files_of_nobody_are_read_with_the_runs_that_may_speak_of_them(tmp_path: Path) -> None:
    """Also where each is named: a shell's `*` names them all."""
    files = {f"args_{at}.yaml": _with(_ARGUMENTS, at) for at in range(1, 4)}
    files["run.sh"] = f"{_FLAGS} --deepspeed own.yaml\n"
    others = {f"chart_{at}.yaml": "image: a\n" for at in range(3)}
    others |= {"own.yaml": "a: 1\n", "config.json": '{"model_type": "gpt2"}'}
    for name, text in {**files, **others}.items():
        (tmp_path / name).write_text(text, "utf-8")
    linted = lint_files([tmp_path / name for name in (*files, *others)], TARGETS.readable())
    unread = [{Path(each.name).name for each in run.unread} for run in linted.runs]
    assert unread[:3] == [{"config.json"}] * 3
    assert unread[3] == {"config.json", "own.yaml"}
    assert unread[4] == {f"chart_{at}.yaml" for at in range(3)}
    told = {Path(e.file).name for e in linted.diagnostics if e.id == "unrecognised-file"}
    assert told == {"own.yaml", *(f"chart_{at}.yaml" for at in range(3))}


def test_too_many_choices_are_not_multiplied(tmp_path: Path) -> None:
    files = {f"{at:02}.json": _engine(7) for at in range(20)}
    files |= {f"{at:02}.yaml": _with(_ARGUMENTS, 4) for at in range(20)}
    told = lint(tmp_path, files, ["."])
    assert "each is read without the others" in told.err
    assert DIFFER not in told.names
    (tmp_path / "00.json").unlink()
    assert len(_read(tmp_path, {}).runs) == 39
