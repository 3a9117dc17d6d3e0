"""`--fix`: safe fixes are applied; those that change what is trained are shown, or asked for."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.lints.lint import lint_files
from tunec.targets.registry import TARGETS

_ENGINE = json.dumps(
    {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}, indent=2
)
_TRAINER = "output_dir: out\nmax_grad_norm: 0.3\nnum_train_epochs: 3\nmax_steps: 100\n"
_FILES = {"ds_config.json": _ENGINE + "\n", "training_args.yaml": _TRAINER}
_SAFE, _UNSAFE = "epochs-beside-steps", "clipping-left-out"


def _texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in _FILES}


def test_the_files_have_a_fix_of_each_kind(tmp_path: Path) -> None:
    found = {e["id"]: e["fix"]["applicability"] for e in lint(tmp_path, _FILES, ["."]).findings}
    assert (found[_SAFE], found[_UNSAFE]) == ("safe", "unsafe")


def test_fix_applies_what_is_safe_and_shows_the_rest(tmp_path: Path) -> None:
    answer = lint(tmp_path, _FILES, [".", "--fix", "--format", "text"])
    texts = _texts(tmp_path)
    assert "num_train_epochs" not in texts["training_args.yaml"]
    assert texts["ds_config.json"] == _FILES["ds_config.json"]
    assert '+  "gradient_clipping": "auto"' in answer.out
    assert "num_train_epochs: 3" not in answer.out
    assert "--fix --unsafe applies them" in answer.err
    quiet = lint(tmp_path, {}, [".", "--fix"])
    assert _UNSAFE in quiet.names, "JSON stays JSON"


def test_unsafe_applies_them_all(tmp_path: Path) -> None:
    answer = lint(tmp_path, _FILES, [".", "--fix", "--unsafe"])
    assert not {_SAFE, _UNSAFE} & set(answer.names)
    texts = _texts(tmp_path)
    assert json.loads(texts["ds_config.json"])["gradient_clipping"] == "auto"
    assert "num_train_epochs" not in texts["training_args.yaml"]


@pytest.mark.parametrize("more", [[], ["--unsafe"]])
def test_diff_shows_all_and_writes_nothing(more: list[str], tmp_path: Path) -> None:
    answer = lint(tmp_path, _FILES, [".", "--fix", "--diff", *more, "--format", "text"])
    assert _texts(tmp_path) == _FILES
    assert '+  "gradient_clipping": "auto"' in answer.out
    assert "-num_train_epochs: 3" in answer.out
    assert "error[" not in answer.out, "a diff and nothing else"
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=answer.out, text=True, check=True)
    assert not {_SAFE, _UNSAFE} & set(lint(tmp_path, {}, ["."]).names)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--unsafe"], "--unsafe goes with --fix"),
        (["--diff"], "--diff goes with --fix"),
        (["--fix", "--diff", "--format", "json"], "--diff prints a diff"),
    ],
)
def test_words_without_their_fix_are_refused(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    extra = arguments if "--format" in arguments else [*arguments, "--format", "text"]
    answer = lint(tmp_path, _FILES, [".", *extra])
    assert (answer.code, said in answer.err) == (2, True)


def test_a_diff_has_no_character_that_moves_the_terminal(tmp_path: Path) -> None:
    text = f"{_TRAINER}run_name: a\x1b[31mb\r\n"
    (tmp_path / "training_args.yaml").write_bytes(text.replace("\n", "\r\n").encode())
    answer = lint(tmp_path, {}, ["training_args.yaml", "--fix", "--diff", "--format", "text"])
    assert "\x1b" not in answer.out


def test_safe_comes_first_where_two_touch_one_place(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).write_text(text)
    linted = lint_files([tmp_path], TARGETS.readable())
    safe, every = linted.fixed(), linted.fixed(unsafe=True)
    assert safe.items() <= every.items() or safe.keys() < every.keys()
    assert len(linted.fixes("safe")) >= 1
    assert len(linted.fixes("unsafe")) >= 1


_MIXTURE = "model_name_or_path: openai/gpt-oss-20b\noutput_dir: out\n"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("use_peft: true\nlora_target_modules: all-linear\ndataset_name: a/b\n", "lora_target_p"),
        ("stage: sft\nfinetuning_type: lora\nlora_target: all\ntemplate: gpt_oss\n", None),
    ],
)
def test_help_names_a_key_only_to_a_reader_that_has_it(
    text: str, key: str | None, tmp_path: Path
) -> None:
    found = lint(tmp_path, {"sft.yaml": _MIXTURE + text}, ["sft.yaml"]).findings
    (told,) = (each["help"] for each in found if each["id"] == "experts-without-adapter")
    assert (f"write {key}" in told) if key else told == "name attention alone"
