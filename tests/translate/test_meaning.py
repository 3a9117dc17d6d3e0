"""Examples that trainers ship, and what `trl` makes of their translation, train in the same way.

Each side's own parser is asked, and what it settles on is compared, setting by setting. A setting
that neither the file nor the trainer's parser says is not compared.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).parents[1] / "lints"))

from shipped import SHIPMENTS, Shipment
from tests.translate.test_shipped import outcomes, translated

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ConsumerFailed, ask_each
from tunec.compiler.consumers.sets import choose
from tunec.targets.axolotl import verify as axolotl
from tunec.targets.llamafactory import verify as llamafactory
from tunec.targets.llamafactory.packages import brought

Values = Mapping[str, Any]
TRL = choose("trl", "1.16.0")
TRL_SCRIPT = "tunec.targets.huggingface.consumer"
MACHINE = {"capability": [9, 0], "memory": 80 * 2**30, "devices": 8}
RUN = {"model_config": {"hidden_size": 4096}, "max_steps": 100, **MACHINE}
SECONDS = 900.0
APART = ("plot_loss", "use_galore", "use_apollo")
"""Keys for which LLaMA-Factory asks for packages that its arguments do not depend on."""
ALIASES = {"adamw_bnb_8bit": "adamw_8bit"}
"""transformers 4.40.2 to 5.23.0 trainer_optimizer.py: two words for one class."""
SAME = (
    *("learning_rate", "lr_scheduler_type", "num_train_epochs", "max_steps", "weight_decay"),
    *("gradient_accumulation_steps", "per_device_train_batch_size", "max_grad_norm", "seed"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "bf16", "fp16", "optim", "save_only_model"),
    *("save_total_limit", "save_steps", "save_strategy", "eval_strategy", "eval_steps"),
    *("output_dir", "trust_remote_code", "ddp_timeout", "logging_steps", "lr_scheduler_kwargs"),
)
"""Settings that the trainers call as the Trainer does."""
AXOLOTL = {
    "base_model": "model_name_or_path",
    "sequence_len": "max_length",
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "num_epochs": "num_train_epochs",
    "lr_scheduler": "lr_scheduler_type",
    "optimizer": "optim",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "revision_of_model": "model_revision",
    "torch_compile": "torch_compile",
    "neftune_noise_alpha": "neftune_noise_alpha",
    "sample_packing": "packing",
}
LLAMAFACTORY = {
    "model_name_or_path": "model_name_or_path",
    "cutoff_len": "max_length",
    "model_revision": "model_revision",
    "neftune_noise_alpha": "neftune_noise_alpha",
    "pref_beta": "beta",
}
ADAPTER = {"lora_r": "r", "lora_rank": "r", "lora_alpha": "lora_alpha"} | {
    "lora_dropout": "lora_dropout",
    "peft_use_dora": "use_dora",
    "use_dora": "use_dora",
    "use_rslora": "use_rslora",
}
"""Keys of both trainers, as PEFT's configuration has them."""


def asked_of_axolotl(texts: list[dict[str, Any]]) -> list[Any]:
    pins = axolotl.requirements(Version("0.19.0"))
    return ask_each(prepare(pins), axolotl.SCRIPT, texts, SECONDS)


def asked_of_llamafactory(texts: list[dict[str, Any]]) -> list[Any]:
    release = Version("0.9.5")
    pins = (*llamafactory.below(release), f"transformers=={brought(release)['transformers']}")
    return ask_each(prepare(pins), llamafactory.SCRIPT, texts, SECONDS)


ASKED: Mapping[str, tuple[Callable[[list[dict[str, Any]]], list[Any]], Values, int]] = {
    "axolotl": (asked_of_axolotl, AXOLOTL, 130),
    "llamafactory": (asked_of_llamafactory, LLAMAFACTORY, 19),
}
"""Who answers, the other names, and how many examples are compared at the least."""


def source_question(path: Path, said: Values, world: int) -> dict[str, Any]:
    """A file with what it names, for its own parser."""
    held = {key: value for key, value in said.items() if key not in APART}
    engine = said.get("deepspeed")
    above = [each / str(engine) for each in path.parents]
    texts = [each.read_text("utf-8") for each in above if each.is_file()]
    files = dict(zip([str(engine)], texts[:1], strict=False))
    text = yaml.safe_dump(held, sort_keys=False)
    return {"verb": "resolve", "yaml": text, "files": files, **RUN, "world_size": world}


def trl_question(path: Path, shipment: Shipment, world: int) -> dict[str, Any]:
    made = translated(path, shipment, world).artifacts
    texts = {each.name: each.text for every in made.values() for each in every}
    (name,) = texts.keys() & {"sft.yaml", "dpo.yaml", "grpo.yaml"}
    method, text = name.removesuffix(".yaml"), texts.pop(name)
    asked = {"verb": "script", "method": method, "yaml": text, "files": texts}
    return {**asked, **RUN, "world_size": world}


def answered(answer: Any) -> bool:
    """Whether a parser came to values; data sets that are not there come after them."""
    return not isinstance(answer, ConsumerFailed) and bool(answer["values"])


def differences(here: Values, answer: Values, names: Values) -> Iterator[tuple[str, Any, Any]]:
    """Settings that the two parsers settle on otherwise."""
    there, adapter = answer["values"], answer["adapter"]
    for key, name in {**dict.fromkeys(SAME), **names}.items():
        mine, theirs = here.get(key), there.get(name or key)
        if mine is not None and (name or key) in there and not agrees(key, mine, theirs, here):
            yield key, mine, theirs
    for key, name in ADAPTER.items() if adapter else ():
        if here.get(key) is not None and here[key] != adapter[name]:
            yield key, here[key], adapter[name]
    warmup = here.get("warmup_steps") or here.get("warmup_ratio")
    if warmup and warmup != there["warmup_steps"]:
        yield "warmup", warmup, there["warmup_steps"]


def agrees(key: str, mine: Any, theirs: Any, here: Values) -> bool:
    if key in ("num_epochs", "num_train_epochs") and (here.get("max_steps") or -1) > 0:
        return True  # steps go before epochs
    if key in ("bf16", "fp16") and mine == "auto":
        return theirs in (True, False)
    if key == "optim" and str(theirs).startswith(("galore", "apollo")):
        return True  # LLaMA-Factory makes these itself, by keys of its own
    if key == "pref_beta" and here["stage"] == "sft":
        return True
    return bool(ALIASES.get(str(mine), mine) == theirs)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "shipment", [each for each in SHIPMENTS if each.package in ASKED], ids=lambda each: each.package
)
def test_both_parsers_come_to_the_same_run(shipment: Shipment) -> None:
    ask, names, least = ASKED[shipment.package]
    runs = [
        (path, said, next(world for world in (2, 1) if translated(path, shipment, world).ok))
        for path, said, ok in outcomes(shipment)
        if ok
    ]
    own = ask([source_question(*each) for each in runs])
    questions = [trl_question(path, shipment, world) for path, _, world in runs]
    made = ask_each(prepare(TRL.requirements), TRL_SCRIPT, questions, SECONDS)
    compared, wrong = 0, []
    for (path, _, _), mine, theirs in zip(runs, own, made, strict=True):
        assert answered(theirs), (path, theirs)
        if answered(mine):
            compared += 1
            wrong += [(path.name, *each) for each in differences(mine["values"], theirs, names)]
    assert not wrong
    assert compared >= least
