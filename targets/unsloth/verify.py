"""How Unsloth's command is run on its YAML, and how its answers are read."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Fact,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    facts,
    known_environment,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.dotted_paths import flat
from tunec.targets.huggingface.verify import SECONDS
from tunec.targets.rows import has_adapter, has_images
from tunec.targets.unsloth.names import copy_of
from tunec.targets.unsloth.packages import PACKAGE

SCRIPT: Final = "tunec.targets.unsloth.consumer"
FILE: Final = "unsloth.yaml"
COMMAND: Final = "unsloth train"


def where(case: Case) -> Where:
    """The environment of a release, with its command's imports. Raises EnvironmentUnavailable."""
    return known_environment(PACKAGE, case.version)


def _ask(case: Case, _: Answers) -> Question:
    return {"verb": "resolve", "yaml": case.text(FILE), "images": has_images(case.plan)}


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    found = flat(answer["values"])
    written = flat(values_of(case, FILE))
    return TranslatedAnswer(
        values=found,
        facts=(*_facts(case.plan, answer["calls"]), _loaded(case, answer["loaded"])),
        ignored=tuple(key for key in written if key not in found),
    )


def _facts(plan: Plan, calls: Mapping[str, Mapping[str, Json]]) -> Iterator[Fact]:
    """Arguments that the command passes to its trainer, and no single key sets."""
    load, prepare = calls["load_model"], calls["prepare_model_for_training"]
    data, train = calls["load_and_format_dataset"], calls["start_training"]
    is_packed = plan.quantization.format == "nf4"
    local = data["local_datasets"] or [data["dataset_source"]]
    told = [
        ("model.path", "model", plan.model.path, load["model_name"]),
        ("quantization.format", "load_in_4bit", is_packed, load["load_in_4bit"]),
        ("adapter.kind", "full_finetuning", not has_adapter(plan), load["full_finetuning"]),
        ("adapter.kind", "use_lora", has_adapter(plan), prepare["use_lora"]),
        ("data.train", "dataset", [plan.data.train, *plan.data.more], local),
        ("optimizer.name", "optim", plan.optimizer.name, train["optim"]),
        ("batch.micro", "batch_size", plan.batch.micro, train["batch_size"]),
        ("data.evaluation", "eval_steps", None, train.get("eval_steps")),
    ]
    yield from facts(told)
    if has_adapter(plan) and not has_images(plan):
        targets = [*plan.adapter.targets]
        yield Fact("adapter.targets", "target_modules", targets, prepare["target_modules"])


def _loaded(case: Case, resolved: str) -> Fact:
    """The repository that is loaded, which may differ from the named one."""
    path, packed = case.plan.model.path, case.plan.quantization.format != "none"
    known = copy_of(path, case.version, in_four_bits=packed) or path
    return Fact("model.path", "loaded", known.lower(), resolved.lower())


PROGRAMS: Final = (Program(COMMAND, FILE, SCRIPT, where, _ask, _hear, seconds=SECONDS),)
