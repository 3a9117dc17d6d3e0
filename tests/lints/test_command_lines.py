"""What a script's command line gives its arguments: asked of the parsers themselves."""

import builtins
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.frontend.nodes import plain
from tunec.compiler.frontend.python_settings import BY_ITSELF, ScriptArguments, given_by
from tunec.compiler.lints.formats import parse_text

_HEAD = "import argparse, dataclasses\nfrom transformers import TrainingArguments\n"
_ARGPARSE = """\
def parse():
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("training")
    group.add_argument("--lr", type=float, default="2e-5")
    group.add_argument("--half", "--fp16", action="store_true")
    parser.add_argument("-s", "--save-steps", type=int, default=100)
    parser.add_argument("--no-bf16", dest="bf16", action="store_false")
    parser.add_argument("--optim", default="adamw_torch", choices=["adamw_torch", "lomo"])
    parser.add_argument("--betas", type=float, nargs="+", default=[0.9, 0.95])
    parser.add_argument("--out", required=True)
    parser.add_argument("--precision", type=str, default="bf16")
    return parser.parse_args()

def train(args, steps):
    TrainingArguments(
        output_dir=args.out, learning_rate=args.lr, fp16=args.half, bf16=args.bf16,
        save_steps=args.save_steps, optim=args.optim, betas=args.betas, max_steps=steps,
        tf32=args.precision == "tf32", eval_steps=int(args.lr * 1e5) or 7,
        seed=args.save_steps if args.precision != "bf16" and args.bf16 else 3,
    )

if __name__ == "__main__":
    train(parse(), steps=5)
"""
_KNOWN_ARGS = """\
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
args, rest = parser.parse_known_args()
TrainingArguments(learning_rate=args.lr, seed=4)
"""
_CLASSES = """\
from transformers import HfArgumentParser

@dataclasses.dataclass
class Data:
    length: int = 512

@dataclasses.dataclass
class Mine:
    lr: float = dataclasses.field(default=1e-4, metadata={"help": "the rate"})
    half: bool = False
    out: str = "o"

def main():
    parser = HfArgumentParser((Data, Mine))
    data, mine = parser.parse_args_into_dataclasses()
    TrainingArguments(mine.out, learning_rate=mine.lr, fp16=mine.half, max_steps=data.length)

main()
"""
_FIRE = """\
import fire
def train(out: str = "o", lr: float = 3e-4, half: bool = True):
    TrainingArguments(out, learning_rate=lr, bf16=half)
fire.Fire(train)
"""
_CLICK = """\
import click
@click.command()
@click.option("--lr", type=float, default=3e-4)
@click.option("--fp16/--no-fp16", "half", default=False)
@click.option("--steps", "-n", type=int, default=9)
def train(lr, half, steps):
    TrainingArguments("o", learning_rate=lr, fp16=half, max_steps=steps)
train()
"""
_RESET = """\
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--seed", type=int, default=3)
args = parser.parse_args()
args.seed = 4
TrainingArguments(learning_rate=args.lr, seed=args.seed)
"""
_REFILLED = """\
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.0)
args = parser.parse_args()
vars(args).update(lr=2.0)
TrainingArguments(learning_rate=args.lr, seed=1)
"""
RUNS = {
    "argparse, defaults": (_ARGPARSE, "--out x", 11),
    "argparse, flags": (
        _ARGPARSE,
        "--out=x --lr 1 --half -s 7 --no-bf16 --optim lomo --betas 0.8 -0.5 --precision tf32",
        11,
    ),
    "argparse, another name": (_ARGPARSE, "--out x --fp16 --lr -1", 11),
    "argparse, known flags": (_KNOWN_ARGS, "--lr 3 --other 4", 2),
    "argparse, nothing": (_KNOWN_ARGS, "", 2),
    "classes, defaults": (_CLASSES, "", 4),
    "classes, flags": (_CLASSES, "--lr 2e-5 --half True --length 8 --out p", 4),
    "classes, a switch": (_CLASSES, "--half", 4),
    "click, defaults": (_CLICK, "", 3),
    "click, flags": (_CLICK, "--lr 2 -n 5", 3),
    "click, two switches": (_CLICK, "--fp16", 2),
    "an attribute that is set": (_RESET, "--lr 2", 1),
    "a namespace that is updated": (_REFILLED, "--lr 5", 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_is_known_is_what_the_parser_makes_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, line, known = RUNS[name]
    real = _called(_HEAD + script, line, monkeypatch)
    parsed, faults = parse_text("train.py", _HEAD + script, given_by([shlex.split(line)]))
    (read,) = [plain(each.root) for each in parsed if each.kind == "hf"]
    assert not faults
    assert len(read) >= known
    assert {key: real[key] for key in read} == read


def _called(text: str, line: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What TrainingArguments is given where the file runs with a line, on a class of our own."""
    made: list[dict[str, Any]] = []

    class TrainingArguments:
        def __init__(self, output_dir: str | None = None, **given: Any) -> None:
            made.append(given if output_dir is None else {"output_dir": output_dir, **given})

    from transformers.hf_argparser import HfArgumentParser

    transformers, main = ModuleType("transformers"), ModuleType("script")
    vars(transformers).update(
        TrainingArguments=TrainingArguments, HfArgumentParser=HfArgumentParser
    )
    strange = {"transformers": transformers}

    def imported(name: str, *others: Any) -> Any:
        return strange.get(name) or __import__(name, *others)

    monkeypatch.setattr(sys, "argv", ["train.py", *shlex.split(line)])
    monkeypatch.setitem(sys.modules, "script", main)
    names = {**vars(builtins), "__import__": imported}
    vars(main).update(__builtins__=names, __name__="__main__")
    with suppress(SystemExit):  # click's own end
        exec(compile(text, "train.py", "exec"), vars(main))  # noqa: S102
    return made[-1]


def test_fire_gives_the_flags_of_its_function() -> None:
    """fire 0.7.0 core.py `Fire`: each parameter is a flag."""
    told = _read(_FIRE, given_by([["--lr=1e-5", "--half=False"]]))
    assert told == {"output_dir": "o", "learning_rate": 1e-5, "bf16": False}


SAYS_NOT = {
    "two lines differ": given_by([["--lr", "3"], ["--lr", "4"]]),
    "one of two lines": given_by([["--lr", "3"], []]),
    "a value that is not known": given_by([["--lr", None]]),
    "words that are not known": given_by([[None]]),
    "a file of values": given_by([["--config", "c.yaml"]]),
    "no line, and no default": BY_ITSELF,
}


@pytest.mark.parametrize("name", SAYS_NOT)
def test_what_only_running_tells_is_not_known(name: str) -> None:
    assert "learning_rate" not in _read(_KNOWN_ARGS, SAYS_NOT[name])


def test_lines_that_agree_are_known() -> None:
    assert _read(_KNOWN_ARGS, given_by([["--lr", "3"], ["--lr=3"]]))["learning_rate"] == 3


def test_a_script_by_itself_has_its_defaults() -> None:
    read = _read(_ARGPARSE, BY_ITSELF)
    assert (read["learning_rate"], read["save_steps"], read["bf16"]) == (2e-5, 100, True)
    assert "output_dir" not in read


def test_a_line_meets_what_the_script_sets(tmp_path: Path) -> None:
    """The flag stands in one file, and what it contradicts in the other."""
    script = f"""{_HEAD}
parser = argparse.ArgumentParser()
parser.add_argument("--save-steps", type=int, default=100)
args = parser.parse_args()
TrainingArguments("o", eval_strategy="steps", eval_steps=50, load_best_model_at_end=True,
                  save_strategy="steps", save_steps=args.save_steps)
"""
    files = {
        "src/tuning/train.py": script,
        "run.sh": "python -m src.tuning.train --save-steps 70\n",
    }
    (found,) = lint(tmp_path, files, ["."]).findings
    assert found["id"] == "best-model-cadence"
    assert "70" in found["message"]
    files["run.sh"] = "python -m src.tuning.train --save-steps 150\n"
    assert lint(tmp_path, files, ["."]).findings == []


def _read(script: str, given: ScriptArguments) -> dict[str, Any]:
    parsed, faults = parse_text("train.py", _HEAD + script, given)
    assert not faults
    (read,) = [plain(each.root) for each in parsed if each.kind == "hf"]
    assert isinstance(read, dict)
    return read


# ── files that a script writes ───────────────────────────────────────────────────────────────────

_START = (
    "torchrun --nproc_per_node 8 train.py --output_dir out --learning_rate 1e-5 "
    "--per_device_train_batch_size 4 --deepspeed ds.json\n"
)
_TEXT = '{\n  "train_micro_batch_size_per_gpu": 7,\n  "zero_optimization": {"stage": $STAGE}\n}\n'
_PROGRAM = "from transformers import HfArgumentParser, Trainer\n"
WRITTEN = {
    "cat, then its file": f"STAGE=2\ncat > ds.json <<EOF\n{_TEXT}EOF\n{_START}",
    "its document, then its file": f"STAGE=2\ncat <<EOF > ./ds.json\n{_TEXT}EOF\n{_START}",
    "tee": f"STAGE=2\ntee ds.json <<EOF > /dev/null\n{_TEXT}EOF\n{_START}",
    "a variable that is not known": f"cat > ds.json <<EOF\n{_TEXT}EOF\n{_START}",
    "echo": "echo '" + _TEXT.replace("\n", "").replace("$STAGE", "2") + f"' > ds.json\n{_START}",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_script_writes_is_read(name: str, tmp_path: Path) -> None:
    files = {"run.sh": WRITTEN[name], "train.py": _PROGRAM}
    found = lint(tmp_path, files, ["."]).findings
    (one,) = [each for each in found if each["id"] == "deepspeed-and-trainer-differ"]
    assert one["labels"][0]["file"].endswith("run.sh/ds.json")
    assert one["fix"] is None
    assert [each for each in found if each["severity"] == "error"] == [one]


NOT_READ = {
    "written in two ways": (
        f"STAGE=2\nif [ $1 = a ]; then\ncat > ds.json <<EOF\n{_TEXT}EOF\nelse\n"
        f"echo '{{}}' > ds.json\nfi\n{_START}"
    ),
    "another's output": f"python make.py > ds.json\n{_START}",
}


@pytest.mark.parametrize("name", NOT_READ)
def test_what_is_not_known_of_a_written_file_is_passed_over(name: str, tmp_path: Path) -> None:
    found = lint(tmp_path, {"run.sh": NOT_READ[name]}, ["."]).findings
    assert {each["id"] for each in found} & {
        "deepspeed-and-trainer-differ",
        "missing-file",
    } == set()


def test_a_script_s_arguments_may_name_what_its_start_writes(tmp_path: Path) -> None:
    train = (
        'from transformers import TrainingArguments\nTrainingArguments("o", deepspeed="ds.json")\n'
    )
    files = {"train.py": train, "run.sh": f"echo '{_UNKNOWN}' > ds.json\ndeepspeed train.py\n"}
    found = lint(tmp_path, files, ["."]).findings
    assert [each["labels"][0]["path"] for each in found if each["id"] == "unknown-key"] == [
        "zero_optimization.stag"
    ]
    assert "missing-file" not in {each["id"] for each in found}


_UNKNOWN = '{"zero_optimization": {"stag": 2}}'


# ── flags over the file that they are given with ─────────────────────────────────────────────────

_FILE = """\
model_name_or_path: Qwen/Qwen2.5-7B
dataset_name: trl-lib/Capybara
output_dir: out
eval_strategy: steps
eval_steps: 100
save_strategy: steps
save_steps: 100
load_best_model_at_end: true
"""
_START_SFT = "accelerate launch -m trl.scripts.sft --config sft.yaml --save_steps "


@pytest.mark.parametrize(("steps", "ids"), [(70, ["best-model-cadence"]), (200, [])])
def test_a_flag_is_judged_with_the_file_below_it(
    steps: int, ids: list[str], tmp_path: Path
) -> None:
    answer = lint(tmp_path, {"sft.yaml": _FILE, "run.sh": f"{_START_SFT}{steps}\n"}, ["."])
    assert answer.names == ids
    for found in answer.findings:
        assert [each["file"] for each in found["labels"]][:2] == ["run.sh", "sft.yaml"]
        assert found["fix"] is None
