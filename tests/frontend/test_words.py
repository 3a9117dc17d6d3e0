"""Words and names of other programs: each is really theirs, and leads to a place of a spec."""

import ast
import importlib.util
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.fields import fields_at, places
from tunec.compiler.frontend.load import load_mapping
from tunec.compiler.frontend.software import PROGRAMS
from tunec.compiler.frontend.unplanned_words import UNPLANNED, UNPLANNED_OBJECTIVES, unplanned
from tunec.compiler.frontend.words import FIELD_WORDS, VALUE_WORDS, place_of
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas import terms
from tunec.schemas.spec import EXCLUSIVE, Spec
from tunec.targets.registry import TARGETS

EVERY = [(word, place) for rows in FIELD_WORDS.values() for word, place in rows.items()]
SHORT = {
    "tunec": 1,
    "model": "llama-3.2-1b",
    "method": "lora",
    "data": "train.jsonl",
    "hardware": "a100-80g-x1",
}
ALL_WORDS = [word for rows in FIELD_WORDS.values() for word in rows]


def source(package: str, *path: str) -> str:
    """The text of a file of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)), *path).read_text("utf-8")


def fields_of(text: str, name: str) -> set[str]:
    """Names of the annotated fields of a class."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    raise LookupError(name)


def test_words_of_transformers():
    known = fields_of(source("transformers", "training_args.py"), "TrainingArguments")
    assert set(FIELD_WORDS["transformers.TrainingArguments"]) <= known


def test_words_of_peft():
    known = fields_of(source("peft", "tuners", "lora", "config.py"), "LoraConfig")
    inherited = fields_of(source("peft", "config.py"), "PeftConfig")
    assert set(FIELD_WORDS["peft.LoraConfig"]) <= known | inherited


def test_words_of_trl():
    configs = [source("trl", "trainer", f"{name}_config.py") for name in ("dpo", "grpo")]
    assert all(any(f"    {word}: " in text for text in configs) for word in FIELD_WORDS["trl"])


def test_words_of_deepspeed():
    text = source("deepspeed", "runtime", "constants.py")
    zero = source("deepspeed", "runtime", "zero", "config.py")
    for word in FIELD_WORDS["deepspeed"]:
        assert f'"{word}"' in text or f"    {word}:" in zero or f'"{word}"' in zero, word


def test_words_of_bitsandbytes():
    text = source("transformers", "utils", "quantization_config.py")
    assert all(
        f"        {word}=" in text for word in FIELD_WORDS["transformers.BitsAndBytesConfig"]
    )


@pytest.mark.parametrize("program", ["axolotl", "llamafactory"])
def test_words_of_recipes(program):
    folder = Path(str(files("tunec.schemas"))) / "json" / program
    newest = max(folder.glob("*.json"), key=lambda each: Version(each.stem))
    assert set(FIELD_WORDS[program]) <= set(json.loads(newest.read_text("utf-8"))["properties"])


@pytest.mark.parametrize(("word", "place"), EVERY)
def test_words_lead_to_real_places(word, place):
    head, _, slot = place.partition(".")
    if slot and head == "pin":
        assert slot in SLOTS
    else:
        path = tuple(place.split("."))
        assert path[-1] in fields_at(Spec, path[:-1])


def test_a_word_is_listed_once_and_is_no_field_at_the_top():
    assert len(ALL_WORDS) == len(set(ALL_WORDS))
    assert not set(ALL_WORDS) & set(Spec.model_fields)


def test_words_are_found_in_any_spelling():
    assert place_of("Per-Device-Train-Batch-Size") == "pin.batch.micro"
    assert place_of("xyzzy") is None


def test_meant_values_exist():
    choices = {c for kind in vars(terms).values() for c in getattr(kind, "__args__", ())}
    choices |= set(EXCLUSIVE[("method",)])
    assert {each for meant in VALUE_WORDS.values() for each in meant} <= choices
    assert not set(VALUE_WORDS) & choices


def test_exclusive_fields_are_fields():
    for path, members in EXCLUSIVE.items():
        assert set(members) <= set(fields_at(Spec, path))


def test_places():
    assert places(Spec)["learning_rate"] == (("train", "learning_rate"),)
    assert ("method", "qlora", "rank") in places(Spec)["rank"]
    assert ("batch", "global") in places(Spec)["global"]


@pytest.mark.parametrize("word", sorted(UNPLANNED))
def test_a_way_to_adapt_that_is_no_method_says_what_to_write(word):
    spec = {"tunec": 1, "model": "llama-3.1-8b-instruct", "method": word, "data": "train.jsonl"}
    (found,) = load_mapping({**spec, "hardware": "a100-80g-x1"}).diagnostics
    assert found.id == "E0304"
    assert found.fix is None
    why, instead = unplanned(word)
    assert (found.notes[0], found.help) == (why, instead)
    passed = re.search(r"extra: (\{.*?\}\})`", instead)
    if passed is not None:
        extra = yaml.safe_load(passed[1])
        (target,) = extra
        spec = {**spec, "method": "lora", "hardware": "a100-80g-x1", "extra": extra}
        loaded = load_mapping({**spec, "data": {"train": "train.jsonl", "samples": 100}})
        assert compile_spec(loaded, [TARGETS.resolve(target)]).ok


@pytest.mark.parametrize("word", sorted(UNPLANNED_OBJECTIVES))
@pytest.mark.parametrize("is_mapping", [False, True], ids=["word", "mapping"])
def test_an_objective_that_is_none_says_what_to_write(word, is_mapping):
    spec = {"tunec": 1, "model": "llama-3.1-8b-instruct", "method": "lora", "data": "train.jsonl"}
    given = {"objective": {word: {}} if is_mapping else word, "hardware": "a100-80g-x1"}
    (found,) = load_mapping({**spec, **given}).diagnostics
    assert found.id == ("E0301" if is_mapping else "E0304")
    assert found.fix is None
    assert (found.notes[0], found.help) == unplanned(word, ("objective",))
    for written in re.findall(r"`objective: (.*?)`", found.help):
        asked = yaml.safe_load(written.replace("...", "reward"))
        more = {"tunec": 1, "data": {"train": "train.jsonl", "samples": 100}}
        assert load_mapping({**spec, **more, **given, "objective": asked}).spec is not None


@pytest.mark.parametrize("word", sorted(UNPLANNED))
def test_a_mapping_for_such_a_way_says_the_same(word):
    spec = {"tunec": 1, "model": "llama-3.1-8b-instruct", "data": "train.jsonl"}
    (found,) = load_mapping({**spec, "method": {word: {}}, "hardware": "a100-80g-x1"}).diagnostics
    assert found.id == "E0301"
    assert ((found.notes[0], found.help)) == unplanned(word)


@pytest.mark.parametrize("slot", ["nodes", "per_node"])
def test_a_field_that_tunec_decides_at_that_very_path_is_pinned(slot):
    spec = {"tunec": 1, "model": "llama-3.1-8b-instruct", "data": "train.jsonl", "method": "lora"}
    given = {**spec, "hardware": "a100-80g-x8-n2"}
    (found,) = load_mapping({**given, "devices": {slot: 1}}).diagnostics
    assert found.help == f"pin it: `pin: {{devices.{slot}: ...}}`"
    assert load_mapping({**given, "pin": {f"devices.{slot}": 1}}).spec is not None


def test_every_program_of_a_target_is_known_by_name():
    targets = TARGETS.readable().values()
    read = {each.package for each in targets} | {name for each in targets for name in each.beside}
    assert read - {""} <= set(PROGRAMS)
    assert set(PROGRAMS) - read == {"liger-kernel"}, "what passes ask for beside the targets"


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("hf", "did you mean `huggingface`?"),
        ("ds@0.19", "did you mean `deepspeed`?"),
        ("swift", "did you mean `ms-swift`?"),
        ("llama-factory", "did you mean `llamafactory`?"),
        ("x", "name one of them"),
    ],
)
def test_a_short_name_of_a_target_is_understood(name, help):
    found = load_mapping({**SHORT, "targets": [name]}, targets=tuple(TARGETS)).diagnostics
    assert [(each.id, each.help) for each in found] == [("E0309", help)]


def test_fields_are_listed_only_where_the_place_is_not_known():
    found = load_mapping({**SHORT, "lr": 1, "qwertz": 1}).diagnostics
    assert [len(each.notes) for each in found] == [0, 1]


def test_a_word_of_a_field_suggests_it_and_a_named_model_needs_no_mapping():
    model = {"path": "Qwen/Qwen3-8B"}
    spec = {"model": model, "train": {"epochs": 1, "rate": 1e-4}}
    missing, unknown = load_mapping({**SHORT, **spec}).diagnostics
    assert missing.help is not None
    assert missing.help.startswith("write `model: Qwen/Qwen3-8B`")
    assert unknown.help == "did you mean `learning_rate`?"
