"""Examples that trainers ship, and what `trl` makes of their translation, train in the same way.

Each side's own parser is asked, and what it settles on is compared, setting by setting. What is
translated back is compared with the example by the trainer's own parser.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parents[1] / "lints"))

from shipped import SHIPMENTS, Shipment
from tests.translate.meanings import Meaning, Values, of_axolotl, of_llamafactory, of_trl
from tests.translate.test_shipped import outcomes, shipment_of, translated

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ConsumerFailed, ask_each
from tunec.compiler.consumers.sets import choose
from tunec.compiler.lints.environment import environment_of
from tunec.compiler.translate.translate import translate_texts
from tunec.targets.axolotl import verify as axolotl
from tunec.targets.llamafactory import verify as llamafactory
from tunec.targets.llamafactory.packages import installed_releases
from tunec.targets.registry import TARGETS

TRL = choose("trl", "1.16.0")
TRL_SCRIPT = "tunec.targets.huggingface.consumer"
MACHINE = {"capability": [9, 0], "memory": 80 * 2**30, "devices": 8}
RUN = {"model_config": {"hidden_size": 4096}, "max_steps": 100, **MACHINE}
SECONDS = 900.0
DATA_SETS = "data/dataset_info.json"
APART = ("plot_loss", "use_galore", "use_apollo")
"""Keys for which LLaMA-Factory asks for packages that its arguments do not depend on."""

Question = dict[str, Any]
Asking = Callable[[list[Question]], list[Any]]


def asked_of_axolotl(questions: list[Question]) -> list[Any]:
    pins = axolotl.requirements(Version("0.19.0"))
    return ask_each(prepare(pins), axolotl.SCRIPT, questions, SECONDS)


def asked_of_llamafactory(questions: list[Question]) -> list[Any]:
    release = Version("0.9.5")
    pins = (
        *llamafactory.below(release),
        f"transformers=={installed_releases(release)['transformers']}",
    )
    return ask_each(prepare(pins), llamafactory.SCRIPT, questions, SECONDS)


def asked_of_trl(questions: list[Question]) -> list[Any]:
    return ask_each(prepare(TRL.requirements), TRL_SCRIPT, questions, SECONDS)


class Trainer(Struct, frozen=True):
    """Who answers for a trainer, and how many examples are compared at the least."""

    ask: Asking
    meaning: Callable[[Values], Meaning]
    least: int
    least_back: int


TRAINERS: Mapping[str, Trainer] = {
    "axolotl": Trainer(asked_of_axolotl, of_axolotl, 140, 100),
    "llamafactory": Trainer(asked_of_llamafactory, of_llamafactory, 20, 4),
}


class Pair(Struct, frozen=True):
    """An example and its translation, as both parsers settle them."""

    path: Path
    world: int
    texts: Mapping[str, str]
    """TRL's files by name."""
    question: Question
    """TRL is asked so."""
    here: Meaning
    there: Meaning


def source_question(path: Path, said: Values, world: int) -> Question:
    """A file with what it names, for its own parser."""
    held = {key: value for key, value in said.items() if key not in APART}
    name = str(said.get("deepspeed"))
    named = next((each / name for each in path.parents if (each / name).is_file()), None)
    files = {} if named is None else {name: named.read_text("utf-8")}
    sets = next((each for f in path.parents if (each := f / DATA_SETS).is_file()), None)
    files |= {} if sets is None else {DATA_SETS: sets.read_text("utf-8")}
    text = yaml.safe_dump(held, sort_keys=False)
    return {"verb": "resolve", "yaml": text, "files": files, **RUN, "world_size": world}


def trl_question(texts: Mapping[str, str], world: int) -> Question:
    (name,) = texts.keys() & {"sft.yaml", "dpo.yaml", "grpo.yaml"}
    files = {other: text for other, text in texts.items() if other != name}
    method = name.removesuffix(".yaml")
    asked = {"verb": "script", "method": method, "yaml": texts[name], "files": files}
    return {**asked, **RUN, "world_size": world}


def answered(answer: Any) -> bool:
    """Whether a parser came to values; data sets that are not there come after them."""
    return not isinstance(answer, ConsumerFailed) and bool(answer["values"])


def own_answer(answer: Values, question: Question, said: Values) -> Values:
    """An answer with what was held back, and with DeepSpeed's file where no parser settles it."""
    held = {key: said[key] for key in APART if key in said}
    engine = question["files"].get(str(said.get("deepspeed")))
    settled = answer.get("deepspeed") or (json.loads(engine) if engine else None)
    return {**answer, "values": {**answer["values"], **held}, "deepspeed": settled}


@cache
def pairs(shipment: Shipment) -> tuple[Pair, ...]:
    trainer = TRAINERS[shipment.package]
    runs = [(path, said) for path, said, ok in outcomes(shipment) if ok]
    worlds = [next(w for w in (2, 1) if translated(path, shipment, w).ok) for path, _ in runs]
    made = [_texts(translated(*each)) for each in _with(runs, shipment, worlds)]
    own = [source_question(*run, world) for run, world in zip(runs, worlds, strict=True)]
    theirs = [trl_question(*each) for each in zip(made, worlds, strict=True)]
    mine, settled = trainer.ask(own), asked_of_trl(theirs)
    assert all(map(answered, settled)), settled
    return tuple(
        Pair(path, world, texts, question, trainer.meaning(own_answer(one, asked, said)), of_trl(o))
        for (path, said), world, texts, question, asked, one, o in zip(
            runs, worlds, made, theirs, own, mine, settled, strict=True
        )
        if answered(one)
    )


def _with(runs: Any, shipment: Shipment, worlds: list[int]) -> list[tuple[Path, Shipment, int]]:
    return [(path, shipment, world) for (path, _), world in zip(runs, worlds, strict=True)]


def _texts(found: Any) -> dict[str, str]:
    assert found.ok, found.diagnostics
    return {each.name: each.text for every in found.artifacts.values() for each in every}


def differences(here: Meaning, there: Meaning, world: int = 2) -> list[tuple[str, Any, Any]]:
    """Settings that the two parsers settle on otherwise; one device has nothing to average."""
    both = [key for key in here if key in there]
    among = both if world > 1 else [key for key in both if key != "average_tokens_across_devices"]
    return [(key, here[key], there[key]) for key in among if here[key] != there[key]]


SHIPPED = [each for each in SHIPMENTS if each.package in TRAINERS]


@pytest.mark.nightly
@pytest.mark.parametrize("shipment", SHIPPED, ids=lambda each: each.package)
def test_both_parsers_come_to_the_same_run(shipment: Shipment) -> None:
    every = pairs(shipment)
    wrong = [(e.path.name, *d) for e in every for d in differences(e.here, e.there, e.world)]
    assert not wrong
    assert len(every) >= TRAINERS[shipment.package].least


FAULTS: Mapping[str, tuple[str, str]] = {
    "learning_rate": (r"^learning_rate: .*", "learning_rate: 0.5"),
    "adapter.target_modules": (
        r"^lora_target_modules:.*\n(- .*\n)*",
        "lora_target_modules: [up]\n",
    ),
    "adapter.r": (r"^lora_r: .*", "lora_r: 3"),
    "adapter.lora_dropout": (r"^lora_dropout: .*", "lora_dropout: 0.4"),
    "datasets": (r"^dataset_name: .*|^- path: .*", r"\g<0>x"),
    "test_split_size": (r"^test_split_size: .*", "test_split_size: 0.4"),
    "gradient_checkpointing": (
        r"^(activation|gradient)_checkpointing: true",
        "activation_checkpointing: false",
    ),
    "use_reentrant": (r"use_reentrant: (true|false)", "use_reentrant: null"),
    "quantization.double": (r"^use_bnb_nested_quant: true", "use_bnb_nested_quant: false"),
    "quantization.type": (r"^bnb_4bit_quant_type: nf4", "bnb_4bit_quant_type: fp4"),
    "quantization.compute": (r"^dtype: bfloat16", "dtype: float16"),
    "average_tokens_across_devices": (
        r"^average_tokens_across_devices: false",
        "average_tokens_across_devices: true",
    ),
    "fsdp.state_dict": (r"FULL_STATE_DICT", "SHARDED_STATE_DICT"),
    "deepspeed": (r"\"stage\": 3", '"stage": 2'),
    "warmup": (r"^warmup_steps: .*", "warmup_steps: 7"),
    "eval_steps": (r"^eval_steps: .*", "eval_steps: 3"),
    "loss_type": (r"^loss_type: dft", "loss_type: nll"),
}
"""What a setting is spoilt by in TRL's file or DeepSpeed's."""


def spoilt(key: str, pattern: str, instead: str) -> tuple[Pair, Question]:
    """The first example that sets `key` so, with a fault in its translation."""
    for each in (pair for shipment in SHIPPED for pair in pairs(shipment)):
        spoil = {
            name: re.sub(pattern, instead, text, count=1, flags=re.MULTILINE)
            for name, text in each.texts.items()
        }
        if key in each.here and spoil != each.texts:
            return each, trl_question(spoil, each.world)
    raise LookupError(key)


@pytest.mark.nightly
def test_a_planted_fault_is_a_difference() -> None:
    planted = {key: spoilt(key, *fault) for key, fault in FAULTS.items()}
    answers = asked_of_trl([question for _, question in planted.values()])
    unseen = [
        (key, pair.path.name)
        for (key, (pair, _)), answer in zip(planted.items(), answers, strict=True)
        if key not in {name for name, _, _ in differences(pair.here, of_trl(answer), pair.world)}
    ]
    assert not unseen


def back(pair: Pair, package: str) -> tuple[Question, Values] | None:
    """A question of what a translation becomes in the trainer's own words again."""
    targets = TARGETS.readable()
    around = environment_of(targets, world=pair.world)
    found = translate_texts(pair.texts, [TARGETS.resolve(package)], targets, around)
    return written_question(_texts(found), package, pair.world) if found.ok else None


def written_question(files: dict[str, str], package: str, world: int) -> tuple[Question, Values]:
    """A question of a trainer's new files, and what the YAML among them says."""
    text = files.pop(f"{package}.yaml")
    said = yaml.safe_load(text)
    engine = {str(said["deepspeed"]): files["ds_config.json"]} if "deepspeed" in said else {}
    beside = {f"{package}/{name}": each for name, each in files.items()}
    asked = {"verb": "resolve", "yaml": text, "files": {**beside, **engine}}
    return {**asked, **RUN, "world_size": world}, said


@pytest.mark.nightly
@pytest.mark.parametrize("shipment", SHIPPED, ids=lambda each: each.package)
def test_the_way_back_is_the_same_run(shipment: Shipment) -> None:
    trainer = TRAINERS[shipment.package]
    every = [(pair, back(pair, shipment.package)) for pair in pairs(shipment)]
    asked = [(pair, *returned) for pair, returned in every if returned is not None]
    answers = trainer.ask([question for _, question, _ in asked])
    wrong = [
        (pair.path.name, *each)
        for (pair, question, said), answer in zip(asked, answers, strict=True)
        for each in differences(
            pair.here, trainer.meaning(own_answer(answer, question, said)), pair.world
        )
    ]
    assert not wrong
    assert len(asked) >= trainer.least_back


DIRECT = (("axolotl", "llamafactory"), ("llamafactory", "axolotl"))
TOLD = {
    ("axolotl", "llamafactory"): {"dtype"},
    ("llamafactory", "axolotl"): {"average_tokens_across_devices", "warmup"},
}
"""What the other trainer has no word for: a warning tells of weights in bf16 that LLaMA-Factory
trains in fp32. Axolotl's processes divide by their own tokens, and its warm-up has no zero."""
_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")


def same_step(meaning: Meaning) -> Meaning:
    """Packed rows of a step as one number, since LLaMA-Factory takes one at a time; names of layers
    in place of a pattern are held to the model's modules where they are made."""
    held = {key: each for key, each in meaning.items() if key not in _BATCH}
    held["rows"] = meaning[_BATCH[0]] * meaning.get(_BATCH[1], 1)
    return {key: each for key, each in held.items() if not key.startswith("per_device_eval")}


@pytest.mark.nightly
@pytest.mark.parametrize(("one", "other"), DIRECT)
def test_the_other_trainer_comes_to_the_same_run(one: str, other: str) -> None:
    shipment, here, there = shipment_of(one), TRAINERS[one], TRAINERS[other]
    runs = []
    for path, said, _ in outcomes(shipment):
        every = ((world, translated(path, shipment, world, other)) for world in (2, 1))
        runs += [(path, said, world, found) for world, found in every if found.ok][:1]
    asked = [source_question(path, said, world) for path, said, world, _ in runs]
    written = [written_question(_texts(found), other, world) for _, _, world, found in runs]
    answers = zip(here.ask(asked), there.ask([each for each, _ in written]), strict=True)
    compared, wrong = 0, []
    for (path, said, world, _), question, (new, held), (mine, theirs) in zip(
        runs, asked, written, answers, strict=True
    ):
        if answered(mine) and answered(theirs):
            compared += 1
            before = same_step(here.meaning(own_answer(mine, question, said)))
            after = same_step(there.meaning(own_answer(theirs, new, held)))
            if isinstance(before.get("adapter.target_modules"), str):
                del before["adapter.target_modules"]
            wrong += [
                (path.name, *each)
                for each in differences(before, after, world)
                if each[0] not in TOLD[one, other]
            ]
    assert not wrong
    assert compared >= 0.8 * len(runs) > 0
