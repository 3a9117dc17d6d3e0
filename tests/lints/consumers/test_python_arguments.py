"""What calls of the real classes refuse, and what is found in a file with the same call."""

import importlib
import importlib.metadata
import inspect
from pathlib import Path

import pytest

from tunec.compiler.lints.checks.keys.trainer_calls import MOVED as MOVED_ARGUMENTS
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.lint import lint_texts
from tunec.targets.registry import REGISTRY

TARGETS = REGISTRY.readable()
CONFIGS = {
    "trl": ("trl", "SFTConfig"),
    "transformers": ("transformers", "TrainingArguments"),
    "accelerate": ("transformers", "TrainingArguments"),
}
CALLS = {
    "transformers.TrainingArguments": ("'out', load_in_4bit=True", "load_in_4bit"),
    "trl.SFTConfig": ("'out', use_peft=True", "use_peft"),
    "trl.GRPOConfig": ("'out', lora_r=8", "lora_r"),
    "peft.LoraConfig": ("r=8, learning_rate=1e-4", "learning_rate"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_class_refuses_the_arguments_of_others(name: str) -> None:
    package, _, word = name.rpartition(".")
    given, wrong = CALLS[name]
    real = getattr(pytest.importorskip(package), word)
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{wrong}'"):
        eval(f"C({given})", {"C": real})  # noqa: S307
    text = f"from {package} import {word}\n{word}({given})\n"
    found = lint_texts({"train.py": text}, TARGETS).diagnostics
    (told,) = [each for each in found if each.id == "argument-of-no-release"]
    assert f"`{wrong}`" in told.message


@pytest.mark.parametrize("name", CALLS)
def test_every_field_of_a_real_class_is_known(name: str) -> None:
    package, _, word = name.rpartition(".")
    pytest.importorskip(package)
    real = getattr(importlib.import_module(package), word)
    words = ", ".join(f"{each}=x" for each in real.__dataclass_fields__)
    text = f"from {package} import {word}\n{word}({words})\n"
    found = {each.id for each in lint_texts({"train.py": text}, TARGETS).diagnostics}
    assert "argument-of-no-release" not in found


MOVED = [
    (name, word)
    for name, every in MOVED_ARGUMENTS.items()
    for moved in every
    for word in sorted(moved.names)
]
LOADED = "transformers.from_pretrained"


@pytest.mark.parametrize("word", [word for name, word in MOVED if name == LOADED])
def test_a_model_refuses_the_arguments_of_loading_that_moved(word: str, tmp_path: Path) -> None:
    """Loading hands them on to the class of the model."""
    real = pytest.importorskip("transformers")
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = real.LlamaConfig(**sizes, num_attention_heads=1)
    real.LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}'"):
        real.AutoModelForCausalLM.from_pretrained(tmp_path, **{word: True})
    here = Environment(software={"transformers": importlib.metadata.version("transformers")})
    text = (
        "from transformers import AutoModelForCausalLM as M, TrainingArguments\n"
        f"M.from_pretrained('m', {word}=True)\nTrainingArguments('o')\n"
    )
    found = lint_texts({"train.py": text}, TARGETS, here).diagnostics
    (told,) = [each for each in found if each.id == "trainer-argument-moved"]
    assert (told.severity, f"`{word}`" in told.message) == ("error", True)


@pytest.mark.parametrize(("name", "word"), [row for row in MOVED if row[0] != LOADED])
def test_a_trainer_refuses_the_arguments_that_moved(name: str, word: str) -> None:
    package, _, trainer = name.rpartition(".")
    real = getattr(pytest.importorskip(package), trainer)
    parameters = inspect.signature(real.__init__).parameters
    assert word not in parameters
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters.values())
    here = Environment(software={package: importlib.metadata.version(package)})
    config = "from {} import {} as C".format(*CONFIGS[package])
    text = f"{config}\nfrom {package} import {trainer}\na = C('o')\n{trainer}({word}=1)\n"
    found = lint_texts({"train.py": text}, TARGETS, here).diagnostics
    (told,) = [each for each in found if each.id == "trainer-argument-moved"]
    assert (told.severity, f"`{word}`" in told.message) == ("error", True)


@pytest.mark.parametrize("word", ["bf16", "fp16"])
def test_arguments_take_the_precision_when_they_are_made(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pytest.importorskip("transformers").TrainingArguments
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    late = real(str(tmp_path), use_cpu=True)
    setattr(late, word, True)
    assert late.mixed_precision == "no"
    assert real(str(tmp_path), use_cpu=True, **{word: True}).mixed_precision == word
    text = (
        f"from transformers import TrainingArguments\na = TrainingArguments('o')\na.{word} = True\n"
    )
    found = [each.id for each in lint_texts({"train.py": text}, TARGETS).diagnostics]
    assert found == ["precision-set-too-late"]
    for other in (
        f"if x:\n    a.{word} = True\n",
        f"a.{word} = y\n",
        f"setattr(a, '{word}', True)\n",
    ):
        head = "from transformers import TrainingArguments\na = TrainingArguments('o')\n"
        assert lint_texts({"train.py": head + other}, TARGETS).diagnostics == ()
