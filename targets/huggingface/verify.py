"""How transformers, peft and trl are asked about the Trainer's files, and how they are heard."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.sets import choose
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Heard,
    Program,
    Question,
    Where,
    facts,
    flat,
)
from tunec.compiler.verify.delivery import document
from tunec.targets.deepspeed.config import NAME as DS_CONFIG
from tunec.targets.deepspeed.verify import engine_programs, refusal
from tunec.targets.huggingface.packages import PEFT, TRL

SCRIPT: Final = "tunec.targets.huggingface.consumer"
_SECONDS: Final = 300.0
_SOME_STEPS: Final = 100
"""Optimizer steps of a run whose length nobody knows: some schedules want a number."""

_ARGUMENTS, _AUTO, _LORA, _MODEL, _SFT = (
    "TrainingArguments",
    "HfTrainerDeepSpeedConfig",
    "LoraConfig on the module tree",
    "ModelConfig",
    "trl sft",
)
TRAINING, ADAPTER, MODEL_ARGS, SFT = (
    "training_args.yaml",
    "adapter_config.json",
    "model_args.yaml",
    "sft.yaml",
)


def where(case: Case) -> Where:
    """The set of the release of transformers, with the peft and trl that the case names."""
    known = choose("transformers", str(case.version))
    named = {name: str(case.dialect[name]) for name in (PEFT, TRL)}
    pins = (pin.partition("==") for pin in known.requirements)
    chosen = tuple(f"{name}=={named.get(name, version)}" for name, _, version in pins)
    return Where(known.consumer, known.version, chosen)


# ── TrainingArguments, and "auto" in the file beside it ──────────────────────────────────────────


def _arguments(case: Case, _: Answers) -> Question | None:
    if TRAINING not in case.delivered:
        return None
    beside = {DS_CONFIG: case.text(DS_CONFIG)} if DS_CONFIG in case.delivered else {}
    return {
        "verb": "resolve",
        "yaml": case.text(TRAINING),
        "files": beside,
        "model_config": {"hidden_size": case.architecture.hidden},
        "max_steps": case.plan.schedule.steps or _SOME_STEPS,
        **case.machine(),
    }


def settled(case: Case, values: Mapping[str, Json]) -> dict[str, Json]:
    """What a class settled on by dotted key; epochs count for nothing beside steps."""
    given = case.plan.schedule.epochs is not None
    return {key: each for key, each in flat(values).items() if given or key != "num_train_epochs"}


def _hear_arguments(case: Case, answer: Any) -> Heard:
    if answer["refused"]:
        return Heard(refused=refusal(answer))
    plan, derived = case.plan, answer["derived"]
    pairs = [
        ("schedule.warmup_steps", "warmup_steps", plan.schedule.warmup_steps, "warmup_steps"),
        ("batch.micro", "per_device_train_batch_size", plan.batch.micro, "train_batch_size"),
        ("parallel.world", "processes", plan.parallel.world, "world_size"),
    ]
    return Heard(
        values=settled(case, answer["values"]),
        facts=facts([(slot, key, wanted, derived[name]) for slot, key, wanted, name in pairs]),
    )


def _hear_auto(_: Case, answer: Any) -> Heard:
    refused = answer["refused"]
    if refused and refused["stage"] != "deepspeed" and " ds " not in f" {refused['message']}":
        return Heard(unchecked=f"the Trainer refused its arguments before ({refused['message']})")
    if refused:
        return Heard(refused=refusal(answer))
    if answer["deepspeed"] is None:
        return Heard(
            facts=facts([("parallel.engine", "zero_optimization", "read by the Trainer", None)])
        )
    return Heard(values=flat(_spoken(answer["deepspeed"])))


def _spoken(config: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in config.items() if key not in _SILENT}


_SILENT: Final = ("steps_per_print",)
"""How often DeepSpeed prints: accelerate turns that off, whatever the file says (accelerate 0.30.1
to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`)."""


def _filled(_: Case, answers: Answers) -> Json:
    """The ds_config that the Trainer hands to the engine, with every "auto" filled in."""
    answer = answers.get(_AUTO)
    if answer is None or answer["refused"] or answer["deepspeed"] is None:
        return None
    return _spoken(answer["deepspeed"])


# ── peft ─────────────────────────────────────────────────────────────────────────────────────────


def _adapt(case: Case, _: Answers) -> Question:
    lora = document(case.file(ADAPTER), case.delivered[ADAPTER])
    known = {key: value for key, value in lora.items() if key != "peft_type"}
    named = {"verb": "adapt", "lora": known, "peft_type": lora.get("peft_type")}
    built = case.config if case.plan.model.kind == "causal-lm" else None
    config = {} if built is None or case.architecture.remote_code else {"model_config": built}
    return {**named, **config, "modules": _modules(case), "dtype": "bfloat16"}


def _modules(case: Case) -> list[list[Any]]:
    """The module tree as (dotted name, kind, shape, bias): for models whose class is elsewhere."""
    return [
        [name, each.kind, list(each.shape), each.bias]
        for each in case.architecture.modules
        for name in each.names()
    ]


def _hear_adapter(case: Case, answer: Any) -> Heard:
    if answer["refused"]:
        return Heard(refused=refusal(answer))
    plan = case.plan.adapter
    trained = [f".{path}." for path in answer["trained_in_full"]]
    pairs = [
        (
            "adapter.trainable_parameters",
            "target_modules",
            plan.trainable_parameters,
            answer["trainable_parameters"],
        ),
        (
            "adapter.also_train",
            "modules_to_save",
            sorted(plan.also_train),
            sorted(
                name for name in plan.also_train if any(f".{name}." in each for each in trained)
            ),
        ),
    ]
    values = flat(answer["values"])
    return Heard(values={**values, **_sorted(case, values)}, facts=facts(pairs))


def _sorted(case: Case, values: Mapping[str, Json]) -> dict[str, Json]:
    """PEFT holds the names of modules as a set: they come back in the plan's order."""
    found: dict[str, Json] = {}
    orders = {
        "target_modules": case.plan.adapter.targets,
        "modules_to_save": case.plan.adapter.also_train,
    }
    for key, order in orders.items():
        if isinstance(values.get(key), list) and sorted(values[key]) == sorted(order):
            found[key] = list(order)
    return found


# ── trl ──────────────────────────────────────────────────────────────────────────────────────────


def _model(case: Case, _: Answers) -> Question:
    return {"verb": "model", "yaml": case.text(MODEL_ARGS), **case.machine()}


def _hear_model(case: Case, answer: Any) -> Heard:
    if answer["refused"]:
        return Heard(refused=refusal(answer))
    return Heard(values=settled(case, answer["values"]))


def _script(case: Case, _: Answers) -> Question:
    names = [name for name in (SFT, DS_CONFIG) if name in case.delivered]
    texts = {name: case.text(name) for name in names}
    return {"verb": "script", "config": SFT, "files": texts, **case.machine()}


def _hear_script(case: Case, answer: Any) -> Heard:
    if answer["refused"]:
        return Heard(refused=refusal(answer))
    plan = case.plan
    adapter, quantised = answer["adapter"] or {}, answer["quantization"] or {}
    pairs: list[tuple[str, str, Any, Any]] = [
        ("adapter.kind", "use_peft", plan.adapter.kind == "lora", bool(adapter)),
        (
            "quantization.format",
            "load_in_4bit",
            plan.quantization.format != "none",
            bool(quantised),
        ),
    ]
    if adapter:
        pairs.append(("adapter.rank", "lora_r", plan.adapter.rank, adapter["r"]))
    if quantised and plan.quantization.format in ("nf4", "fp4"):
        kind = quantised["bnb_4bit_quant_type"]
        pairs.append(("quantization.format", "bnb_4bit_quant_type", plan.quantization.format, kind))
    return Heard(values=settled(case, answer["values"]), facts=facts(pairs))


PROGRAMS: Final = (
    Program(_ARGUMENTS, TRAINING, SCRIPT, where, _arguments, _hear_arguments, seconds=_SECONDS),
    Program(_AUTO, DS_CONFIG, SCRIPT, where, _arguments, _hear_auto, seconds=_SECONDS),
    *engine_programs(_filled, after=_AUTO, silent=_SILENT),
    Program(_LORA, ADAPTER, SCRIPT, where, _adapt, _hear_adapter, seconds=_SECONDS),
    Program(_MODEL, MODEL_ARGS, SCRIPT, where, _model, _hear_model, seconds=_SECONDS),
    Program(_SFT, SFT, SCRIPT, where, _script, _hear_script, seconds=_SECONDS),
)
