"""Python files as configs: which calls are read, what their arguments come to, which are a run."""

import ast
import builtins
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.lints.lint_asking import Answer, lint
from tests.tables import rows, table

from tunec.compiler.frontend.nodes import plain
from tunec.compiler.lints.formats import parse_text
from tunec.compiler.lints.lint import lint_files, lint_texts
from tunec.schemas.source import text_of
from tunec.targets.registry import REGISTRY

TABLES = table(__file__)

TARGETS = REGISTRY.readable()
BOTH = (
    "from transformers import TrainingArguments\nTrainingArguments('out', fp16=True, bf16=True)\n"
)


def _asked(folder: Path, text: str, *arguments: str, **others: str) -> Answer:
    files = {"train.py": text, **{name.replace("__", "."): each for name, each in others.items()}}
    return lint(folder, files, ("train.py", *arguments))


def _documents(text: str) -> dict[str, Any]:
    parsed, faults = parse_text("train.py", text)
    assert not faults
    return {each.kind: plain(each.root) for each in parsed}


# ── what a value comes to: asked of Python itself ────────────────────────────────────────────────

_HEAD = "import os, torch\nimport transformers\nfrom transformers import TrainingArguments\n"
VALUES = TABLES["VALUES"]


@pytest.mark.parametrize("name", VALUES)
def test_what_is_known_is_what_python_makes_of_it(name: str) -> None:
    """Each value that is read is the one that the class is called with, or is set later."""
    text = _HEAD + VALUES[name]
    real = _called(text)
    (read,) = [each for each in parse_text("train.py", text)[0] if each.kind == "hf"]
    known = plain(read.root)
    assert {key: real[key] for key in known} == known
    assert set(real) - known.keys() <= read.unknown


KNOWN_WHOLLY = tuple(VALUES)[: tuple(VALUES).index("later")]


@pytest.mark.parametrize("name", KNOWN_WHOLLY)
def test_what_a_file_spells_out_is_read(name: str) -> None:
    text = _HEAD + VALUES[name]
    assert _documents(text)["hf"] == _called(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("TrainingArguments('out', fp16=True)\n", {"hf": {"output_dir": "out", "fp16": True}}),
        ("SFTConfig(packing=True)\n", {"sft": {"packing": True}}),
        ("    a = trl.SFTConfig(\n        packing=True)\n", {"sft": {"packing": True}}),
        ("import trl\nSFTConfig(packing=True)\n", {}),
        ("class SFTConfig:\n    pass\nSFTConfig(packing=True)\n", {}),
    ],
)
def test_an_excerpt_is_read_without_its_imports(text: str, read: dict[str, Any]) -> None:
    """A well-known class is taken for itself where a file imports nothing and defines none such."""
    assert _documents(text) == read


def _called(text: str) -> dict[str, Any]:
    """What TrainingArguments has once the file has run, by running it on classes of our own."""

    class TrainingArguments:
        def __init__(self, output_dir: str | None = None, **given: Any) -> None:
            words = {"output_dir": output_dir} if output_dir is not None else {}
            self.__dict__.update(words | given)
            made.append(self)

    made: list[TrainingArguments] = []
    transformers = ModuleType("transformers")
    transformers.__dict__["TrainingArguments"] = TrainingArguments
    dataclasses = ModuleType("dataclasses")
    dataclasses.__dict__["replace"] = lambda one, **given: TrainingArguments(**vars(one) | given)
    strange = {each.__name__: each for each in (transformers, dataclasses, ModuleType("torch"))}

    def imported(name: str, *others: Any) -> Any:
        return strange.get(name) or __import__(name, *others)

    names = {**vars(builtins), "__import__": imported}
    exec(compile(text, "train.py", "exec"), {"__builtins__": names, "__name__": "__main__"})  # noqa: S102
    return {key: _listed(value) for key, value in vars(made[-1]).items()}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("torch.float16", "float16"),
        ("torch.half", "float16"),
        ("th.bfloat16", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("'bfloat16'", "bfloat16"),
        ("torch.get_default_dtype()", None),
        ("mine.float16", None),
    ],
)
def test_dtypes_are_words(text: str, word: str | None) -> None:
    head = "import torch, mine\nimport torch as th\nfrom torch import bfloat16\n"
    load = "from transformers import AutoModelForCausalLM as M, Trainer\nTrainer()\n"
    found = _documents(f"{head}{load}m = M.from_pretrained('a/b', torch_dtype={text})\n")
    assert found["model"].get("torch_dtype") == word


# ── which class it is ────────────────────────────────────────────────────────────────────────────

TAKEN = (
    "import transformers\nclass T(transformers.TrainingArguments): ...\nT({0})",
    "from transformers import TrainingArguments as T\nT({0})",
    "import transformers\ntransformers.TrainingArguments({0})",
    "import transformers as hf\nhf.training_args.TrainingArguments({0})",
    "from transformers.training_args import TrainingArguments\nTrainingArguments({0})",
    "from transformers import *\nTrainingArguments({0})",
    "from transformers import Seq2SeqTrainingArguments as T\nT({0})",
    "from trl import SFTConfig as C\nC({0})",
    "from trl.trainer.dpo_config import DPOConfig\nDPOConfig({0})",
    "from trl import ORPOConfig\nORPOConfig({0}, beta=0.1)",
    "try:\n    from trl import SFTConfig as C\nexcept ImportError:\n    raise\nC({0})",
    "def main():\n    from transformers import TrainingArguments as T\n    return T({0})",
    "from trl import SFTConfig as C\nasync def f():\n    await g(lambda: C({0}))",
)
OTHERS = (
    "from mine import TrainingArguments\nTrainingArguments({0})",
    "from .training_args import TrainingArguments\nTrainingArguments({0})",
    "from transformers import Trainer\nclass TrainingArguments: ...\nTrainingArguments({0})",
    "import transformers as t\nclass T(t.TrainingArguments):\n    def __init__(s, x): ...\nT({0})",
    "from transformers import TrainingArguments\nTrainingArguments = f\nTrainingArguments({0})",
    "def f(TrainingArguments):\n    TrainingArguments({0})",
    "import os\nTrainingArguments({0})",
    "from mine import *\nTrainingArguments({0})",
    "'''\nfrom transformers import TrainingArguments\nTrainingArguments({0})\n'''",
    "# from transformers import TrainingArguments\n# TrainingArguments({0})",
    "try:\n    from trl import SFTConfig as C\nexcept ImportError:\n    from mine import C\nC({0})",
)


@pytest.mark.parametrize("text", TAKEN)
def test_a_class_is_known_by_its_import(text: str, tmp_path: Path) -> None:
    answer = _asked(tmp_path, text.replace("{0}", "output_dir='o', fp16=True, bf16=True"))
    assert answer.names.count("fp16-and-bf16") == 1


def test_what_an_heir_declares_is_its_own(tmp_path: Path) -> None:
    text = (
        "from dataclasses import dataclass, field\n"
        "from transformers import TrainingArguments as T\n"
        "@dataclass\nclass Mine(T):\n    fp16: bool = field(default=True)\n    extra: int = 1\n"
        "    more: str\nMine(output_dir='o', bf16=True, extra=3, more='x', other=1)\n"
    )
    answer = _asked(tmp_path, text)
    assert sorted(answer.names) == ["argument-of-no-release", "fp16-and-bf16"]
    (told,) = [each for each in answer.findings if each["id"] == "argument-of-no-release"]
    assert "`other`" in told["message"]


def test_each_call_of_a_function_that_makes_arguments_is_a_run(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments\ndef make(out, half):\n"
        "    return TrainingArguments(out, bf16=True, fp16=half)\n"
        "one = make('a', False)\ntwo = make('b', True)\n"
    )
    assert _asked(tmp_path, text).names == ["fp16-and-bf16"]
    assert _asked(tmp_path, text.replace("True)\n", "False)\n")).names == []


def test_an_argument_whose_value_is_not_known_has_a_name(tmp_path: Path) -> None:
    text = "from trl import SFTConfig\ndef f(c):\n    return SFTConfig(max_seq_length=c.length)\n"
    answer = _asked(tmp_path, text, "--software", "trl=1.16.0")
    assert answer.names == ["field-of-another-release"]


@pytest.mark.parametrize("text", OTHERS)
def test_a_class_of_the_same_name_is_another(text: str, tmp_path: Path) -> None:
    answer = _asked(tmp_path, text.replace("{0}", "output_dir='o', fp16=True, bf16=True"))
    assert answer.names == ["unrecognised-file"]


# ── places, and what is not known ────────────────────────────────────────────────────────────────


def test_the_places_of_an_indented_excerpt_are_its_own(tmp_path: Path) -> None:
    """An excerpt from the body of a function is read as it stands."""
    text = "    # of a function\n    args = TrainingArguments(\n        fp16=True, bf16=True)\n"
    (found,) = _asked(tmp_path, text).findings
    assert (found["id"], found["labels"][0]["line"]) == ("fp16-and-bf16", 3)


def test_a_finding_stands_at_the_value(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments\n"
        "args = TrainingArguments(\n"
        "    output_dir='größe',  fp16=True, bf16=True,\n"
        ")\n"
    )
    (found,) = [each for each in _asked(tmp_path, text).findings if each["id"] == "fp16-and-bf16"]
    at = found["labels"][0]
    assert (at["line"], at["column"], at["end_column"]) == (3, 31, 35)


def test_every_place_holds_what_is_told_of_it() -> None:
    text = (
        "from transformers import TrainingArguments\nLR = 1e-4\n"
        "TrainingArguments('ü', learning_rate=LR, deepspeed={'ä': 1, 'zero_optimization':\n"
        "  {'stage': 3}}, seed=-1)\n"
    )
    (parsed,) = parse_text("train.py", text)[0]
    fields = parsed.root.fields or {}
    assert {key: text_of(each.span, text) for key, each in fields.items()} == {
        "output_dir": "'ü'",
        "learning_rate": "LR",
        "deepspeed": "{'ä': 1, 'zero_optimization':\n  {'stage': 3}}",
        "seed": "-1",
    }
    keys = {key: text_of(each.key_span, text) for key, each in fields.items() if each.key_span}
    assert keys == {"output_dir": "'ü'", **{key: key for key in list(fields)[1:]}}


@pytest.mark.parametrize(
    "given",
    [
        "fp16=True, bf16=use_bf16()",
        "fp16=True, bf16=torch.cuda.is_available()",
        "fp16=half, bf16=True",
        "bf16=True, **more",
        "fp16=True, bf16=True if x else False",
    ],
)
def test_a_rule_is_silent_where_a_value_is_not_known(given: str, tmp_path: Path) -> None:
    head = "import torch\nfrom transformers import TrainingArguments\n"
    answer = _asked(tmp_path, f"{head}TrainingArguments(output_dir='o', {given})\n")
    assert not [each for each in answer.findings if each["severity"] == "error"], answer.out


def test_what_is_not_known_is_not_the_default(tmp_path: Path) -> None:
    """With 8 left out the engine's 7 is refused; where it is not known nothing is found."""
    engine = '{"train_micro_batch_size_per_gpu": 7}'
    head = "from transformers import TrainingArguments\n"
    left_out = f"{head}TrainingArguments('o', deepspeed='ds.json')\n"
    hidden = f"{head}TrainingArguments('o', deepspeed='ds.json', per_device_train_batch_size=n)\n"
    opened = f"{head}TrainingArguments('o', deepspeed='ds.json', **more)\n"
    name = "deepspeed-and-trainer-differ"
    assert name in _asked(tmp_path, left_out, ds__json=engine).names
    assert name not in _asked(tmp_path, hidden).names
    assert name not in _asked(tmp_path, opened).names


def test_an_older_key_is_told_with_the_new_one(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments\n"
        "TrainingArguments('o', evaluation_strategy='steps', eval_steps=10)\n"
    )
    answer = _asked(tmp_path, text, "--software", "transformers=5.0.0")
    found = next(each for each in answer.findings if "evaluation_strategy" in each["message"])
    assert found["severity"] == "error"
    assert "eval_strategy" in f"{found['help']}"
    assert not _asked(tmp_path, text, "--software", "transformers=4.40.2").findings


def test_a_script_s_own_words_do_not_speak_for_it(tmp_path: Path) -> None:
    """The repository's source may declare a key of its own for files; a call names its class."""
    text = (
        "from transformers import TrainingArguments\n"
        "TrainingArguments('o', fp16_opt_level='O7', optim='adamw_torhc', bf17=True)\n"
    )
    others = "class Mine:\n    bf17: bool = True\n    optim: str = 'adamw_torhc'\n"
    assert _asked(tmp_path, text).names == _asked(tmp_path, text, mine__py=others).names
    assert {"argument-of-no-release", "value-out-of-range"} <= {*_asked(tmp_path, text).names}


# ── what belongs together ────────────────────────────────────────────────────────────────────────

QLORA = """\
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float16)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", quantization_config=bnb)
lora = LoraConfig(r=8, target_modules=["q_projj"])
args = TrainingArguments("out", bf16=True)
trainer = Trainer(model=model, args=args)
"""


def test_the_calls_of_a_script_are_one_run(tmp_path: Path) -> None:
    found = {each["id"] for each in _asked(tmp_path, QLORA).findings}
    assert {"quantised-compute-differs", "lora-targets-match-nothing"} <= found


def test_a_base_that_is_loaded_again_to_be_merged_is_no_second_one(tmp_path: Path) -> None:
    merge = """\
from peft import PeftModel
base = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", torch_dtype=torch.float16)
merged = PeftModel.from_pretrained(base, "out").merge_and_unload()
"""
    assert _asked(tmp_path, QLORA + merge).names == _asked(tmp_path, QLORA).names


def test_two_branches_are_two_runs(tmp_path: Path) -> None:
    text = """\
from transformers import TrainingArguments
if large:
    args = TrainingArguments("o", bf16=True, per_device_train_batch_size=7)
else:
    args = TrainingArguments("o", fp16=True, deepspeed="ds.json")
"""
    answer = _asked(tmp_path, text, ds__json='{"train_micro_batch_size_per_gpu": 7}')
    assert "fp16-and-bf16" not in answer.names
    (found,) = [each for each in answer.findings if each["id"] == "deepspeed-and-trainer-differ"]
    assert "per_device_train_batch_size is 8" in found["message"]
    assert "read as 2 runs" in answer.err


def test_each_of_two_branches_has_its_own_engine(tmp_path: Path) -> None:
    text = """\
from transformers import TrainingArguments
def one():
    return TrainingArguments("o", per_device_train_batch_size=1, deepspeed="one.json")
def two():
    return TrainingArguments("o", per_device_train_batch_size=2, deepspeed="two.json")
"""
    engine = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": %s}'
    files = {"one.json": engine % 1, "two.json": engine % 2}
    assert lint(tmp_path, {"train.py": text, **files}, ["train.py"]).names == []
    swapped = {"one.json": files["two.json"], "two.json": files["one.json"]}
    names = lint(tmp_path, swapped, ["train.py"]).names
    assert names == ["deepspeed-and-trainer-differ"] * 2


def test_a_model_of_the_other_branch_is_not_taken(tmp_path: Path) -> None:
    text = """\
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
if half:
    model = AutoModelForCausalLM.from_pretrained("a/b", torch_dtype=torch.float16)
    args = TrainingArguments("o", fp16={0})
else:
    args = TrainingArguments("o", fp16={1})
Trainer(model=model, args=args)
"""
    wrong, right = text.replace("{0}", "True"), text.replace("{0}", "False")
    name = "fp16-trainable-weights"
    assert name in _asked(tmp_path, wrong.replace("{1}", "False")).names
    assert name not in _asked(tmp_path, right.replace("{1}", "True")).names


def test_an_inline_engine_is_read_with_it(tmp_path: Path) -> None:
    text = """\
from transformers import TrainingArguments
DS = {"train_micro_batch_size_per_gpu": 7, "zero_optimization": {"stage": 2}}
TrainingArguments("o", deepspeed=DS)
"""
    (found,) = _asked(tmp_path, text).findings
    assert found["id"] == "deepspeed-and-trainer-differ"


def test_a_launch_line_is_of_the_same_run(tmp_path: Path) -> None:
    """The script's own flags are nobody's: what counts is what it calls the trainer with."""
    script = """\
from transformers import TrainingArguments
TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2,
                  deepspeed="ds.json")
"""
    files = {
        "train.py": script,
        "ds.json": '{"zero_optimization": {"stage": 2}, "train_batch_size": 99, '
        '"gradient_accumulation_steps": "auto"}',
        "run.sh": "torchrun --nproc_per_node 8 train.py --bf16 True --fp16 True --output_dir o\n",
    }
    answer = lint(tmp_path, files, ["run.sh"])
    (found,) = answer.findings
    assert "64" in found["message"]
    assert found["id"] == "deepspeed-and-trainer-differ"
    assert lint(tmp_path, {}, ["."]).findings == answer.findings


def test_a_file_that_is_only_found_does_not_speak_of_its_neighbours(tmp_path: Path) -> None:
    script = "from transformers import TrainingArguments\nTrainingArguments('o')\n"
    files = {"train.py": script, "ds.json": '{"train_micro_batch_size_per_gpu": 7}'}
    assert "deepspeed-and-trainer-differ" not in lint(tmp_path, files, ["."]).names
    assert "deepspeed-and-trainer-differ" in lint(tmp_path, files, [*files]).names


def test_tests_are_not_searched_and_can_be_named(tmp_path: Path) -> None:
    files = dict.fromkeys(("tests/a.py", "test_x.py", "x_test.py", "conftest.py"), BOTH)
    assert "fp16-and-bf16" not in lint(tmp_path, {**files, "b.json": "{}"}, ["."]).names
    assert lint(tmp_path, {}, ["test_x.py"]).names == ["fp16-and-bf16"]


def test_files_that_call_nothing_are_passed_over(tmp_path: Path) -> None:
    answer = lint(tmp_path, {"a.py": "import os\n", "train.py": BOTH}, ["."])
    assert answer.names == ["fp16-and-bf16"]
    assert "a.py" not in answer.err


# ── fixes and allowances ─────────────────────────────────────────────────────────────────────────


def test_a_fix_writes_python(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments\n"
        "TrainingArguments('o', max_steps=100.0, seed=1)\n"
    )
    _asked(tmp_path, text, "--fix")
    fixed = (tmp_path / "train.py").read_text("utf-8")
    assert fixed == text.replace("100.0", "100")


@pytest.mark.parametrize("value", ["STEPS", "(100.0)", "50.0 * 2", "100.0"])
def test_a_fixed_file_can_be_parsed_and_names_stay(value: str) -> None:
    text = (
        "from transformers import TrainingArguments\nSTEPS = 100.0\n"
        f"TrainingArguments('o', max_steps={value})\n"
    )
    linted = lint_texts({"train.py": text}, TARGETS)
    assert [each.id for each in linted.diagnostics] == ["value-of-another-type"]
    fixed = linted.fixed().get("train.py", text)
    ast.parse(fixed)
    assert (fixed == text) == (value in ("STEPS", "50.0 * 2"))


def test_a_comment_allows_a_finding(tmp_path: Path) -> None:
    text = """\
from transformers import TrainingArguments
TrainingArguments(
    'o',
    fp16=True,  # tunec: allow(fp16-and-bf16): it is a test of the refusal
    bf16=True,
)
"""
    assert _asked(tmp_path, text).names == []


# ── what is no Python, or much of it ─────────────────────────────────────────────────────────────


def test_a_fault_of_the_syntax_is_one_finding_with_its_place(tmp_path: Path) -> None:
    text = BOTH + "def f(:\n    pass\n"
    (found,) = _asked(tmp_path, text).findings
    assert (found["id"], found["labels"][0]["line"]) == ("E0104", 3)


def test_python_2_is_named(tmp_path: Path) -> None:
    (found,) = _asked(tmp_path, BOTH + 'print "done"\n').findings
    assert found["id"] == "E0104"
    assert any("Python 2" in note for note in found["notes"])


def test_an_f_string_of_a_later_python_is_a_note_below_it(tmp_path: Path) -> None:
    text = BOTH + """x = f"{"".join(f"{y['a']}" for y in [])}"\n"""
    found = [each for each in _asked(tmp_path, text).findings if each["id"] == "E0104"]
    below = [] if sys.version_info >= (3, 12) else ["note"]
    assert [each["severity"] for each in found] == below


def test_lines_for_the_shell_of_a_notebook_are_passed_over(tmp_path: Path) -> None:
    text = "%%capture\n!pip install \\\n  transformers\nif x:\n    !ls\n" + BOTH
    (found,) = _asked(tmp_path, text).findings
    assert found["id"] == "fp16-and-bf16"
    assert found["labels"][0]["line"] == 7


DEEP = {
    "brackets": "x = " + "[" * 90 + "]" * 90,
    "many brackets": "x = " + "(" * 5000 + ")" * 5000,
    "signs": "x = " + "-" * 20000 + "1",
    "sums": "x = " + "1 + " * 20000 + "1",
    "attributes": "x = a" + ".b" * 20000,
    "calls": "x = a" + "()" * 20000,
    "branches": "if a:\n    pass\n" + "elif a:\n    pass\n" * 1000,
    "blocks": "".join("  " * n + "if a:\n" for n in range(90)) + "  " * 90 + "pass",
    "lambdas": "x = " + "lambda: " * 5000 + "1",
    "texts": "x = " + "'a' " * 20000,
    "many names": "".join(f"x{n + 1} = [x{n}, x{n}]\n" for n in range(200)),
    "names that grow": "x0 = 'a'\n" + "".join(f"x{n + 1} = x{n} + x{n}\n" for n in range(200)),
    "powers": "x = 9**9**9**9",
    "a circle": "a = b\nb = a\nx200 = x = a",
    "a nul": "x = 1\0",
    "a surrogate": "x = '\\ud800'",
}


@pytest.mark.parametrize("name", DEEP)
def test_no_depth_and_no_size_ends_the_reading(name: str, tmp_path: Path) -> None:
    used = "x200" if name in ("many names", "names that grow", "a circle") else "x"
    text = f"{DEEP[name]}\n{BOTH}TrainingArguments('o', run_name={used}, deepspeed={used})\n"
    answer = _asked(tmp_path, text)
    assert answer.code in (0, 1)
    told = [each for each in answer.findings if each["id"] != "key-of-another-release"]
    assert told
    assert not any(each["id"].startswith("tunec") or "failed" in each["message"] for each in told)
    if not told[0]["id"].startswith("E01"):
        assert "fp16-and-bf16" in answer.names


def test_a_named_file_without_calls_is_told(tmp_path: Path) -> None:
    (found,) = _asked(tmp_path, "import os\n").findings
    assert found["message"] == "train.py calls nothing that tunec reads"


def test_nothing_is_run(tmp_path: Path) -> None:
    text = BOTH + "open('made', 'w').close()\nimport made_up_module\n"
    path = tmp_path / "train.py"
    path.write_text(text, "utf-8")
    assert [each.id for each in lint_files([path], TARGETS).diagnostics] == ["fp16-and-bf16"]
    assert not Path("made").exists()


_SET = "from transformers import TrainingArguments\n{}a = TrainingArguments('o', seed=1)\n{}\n"


@pytest.mark.parametrize(*rows(__file__, "test_an_attribute_counts_where_one_line_surely_sets_it"))
def test_an_attribute_counts_where_one_line_surely_sets_it(line: str, value: float | None) -> None:
    found = _documents(_SET.format("LR = 1e-3\n", line))["hf"]
    assert found == {"output_dir": "o", "seed": 1} | ({"learning_rate": value} if value else {})


def test_an_attribute_that_was_read_before_is_no_argument() -> None:
    text = _SET.format("", "a.seed = 3\na.bf16 = True\na.save_strategy = 'no'")
    assert _documents(text)["hf"] == {"output_dir": "o", "seed": 3}


def test_a_trainer_of_trl_may_be_given_a_model_by_its_name(tmp_path: Path) -> None:
    text = """\
from trl import SFTConfig, SFTTrainer
MODEL = "Qwen/Qwen3-0.6B"
SFTTrainer(model=MODEL, args=SFTConfig("o", bf16=False, fp16=True), train_dataset=data).train()
"""
    assert _documents(text)["model"] == {"model_name_or_path": "Qwen/Qwen3-0.6B"}
    (found,) = _asked(tmp_path, text).findings
    assert found["id"] == "bf16-model-in-fp16"
    assert "Qwen3-0.6B" in found["message"]
    other = text.replace("model=MODEL", "model=model").replace("trl", "transformers")
    assert "model" not in _documents(other)
