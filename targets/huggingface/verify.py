"""The questions to transformers, peft and trl about the Trainer's files, and their answers."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.sets import choose
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
    taken,
    turned_down,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.dotted_paths import flat
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.config import NAME as DS_CONFIG
from tunec.targets.deepspeed.verify import beside, engine_programs
from tunec.targets.huggingface.cards import card_program
from tunec.targets.huggingface.model import DTYPES
from tunec.targets.huggingface.packages import PEFT, TRL

SCRIPT: Final = "tunec.targets.huggingface.consumer"
Asking = Callable[[Case, Answers], Question | None]
SECONDS: Final = 300.0
_SOME_STEPS: Final = 100
"""Optimizer steps of a run with unknown length, because some schedules need a number."""

_ARGUMENTS, _AUTO, _LORA, _MODEL, _SFT = (
    "TrainingArguments",
    "HfTrainerDeepSpeedConfig",
    "LoraConfig on the module tree",
    "ModelConfig",
    "trl sft",
)
_SEQ2SEQ: Final = "Seq2SeqTrainingArguments"
"""The class that parses the arguments of a script whose evaluation generates."""
TRAINING, ADAPTER, MODEL_ARGS, SFT = (
    "training_args.yaml",
    "adapter_config.json",
    "model_args.yaml",
    "sft.yaml",
)


def where(case: Case) -> Where:
    """The environment of the release of transformers, with the peft and trl that the case names."""
    known = choose("transformers", str(case.version))
    named = {name: str(case.dialect[name]) for name in (PEFT, TRL) if name in case.dialect}
    pins = (pin.partition("==") for pin in known.requirements)
    chosen = tuple(f"{name}=={named.get(name, version)}" for name, _, version in pins)
    return Where(known.consumer, known.version, chosen)


# ── TrainingArguments, and "auto" in the file beside it ──────────────────────────────────────────


def _arguments(case: Case, _: Answers) -> Question | None:
    if TRAINING not in case.delivered:
        return None
    kind = _SEQ2SEQ if case.plan.evaluation.predictions == "answers" else _ARGUMENTS
    given = {"class": kind, "yaml": case.text(TRAINING), "files": beside(case)}
    return {"verb": "resolve", **given, **run_of(case)}


def run_of(case: Case) -> dict[str, Any]:
    """The Trainer's facts about the run when it fills in a ds_config, and the declared machine."""
    return {
        "model_config": {"hidden_size": case.architecture.hidden},
        "max_steps": case.plan.schedule.steps or _SOME_STEPS,
        **case.machine(),
    }


def settled(case: Case, values: Mapping[str, Json]) -> dict[str, Json]:
    """A class's final values by dotted key; num_train_epochs has no effect beside steps."""
    given = case.plan.schedule.epochs is not None
    return {key: each for key, each in flat(values).items() if given or key != "num_train_epochs"}


def _hear_arguments(case: Case, answer: Any) -> TranslatedAnswer:
    return TranslatedAnswer(
        values=settled(case, answer["values"]), facts=derived_facts(case.plan, answer["derived"])
    )


def _warmup(plan: Plan) -> int | None:
    """The warm-up in steps, for the number of steps that the Trainer gets."""
    share = plan.schedule.warmup_share
    if plan.schedule.steps is None and share is not None:
        return math.ceil(_SOME_STEPS * share)
    return plan.schedule.warmup_steps


def derived_facts(plan: Plan, derived: Mapping[str, Json], prefix: str = "") -> tuple[Fact, ...]:
    """Facts that the class computes from the arguments, at the top of a file or in a block."""
    pairs = [
        ("schedule.warmup_steps", "warmup_steps", _warmup(plan), "warmup_steps"),
        ("batch.micro", "per_device_train_batch_size", plan.batch.micro, "train_batch_size"),
        ("parallel.world", "processes", plan.parallel.world, "world_size"),
    ]
    return facts([(slot, prefix + key, wanted, derived[name]) for slot, key, wanted, name in pairs])


def _unfilled(case: Case, answer: Any) -> TranslatedAnswer | None:
    """The outcome if there is no answer: refused arguments tell nothing about the ds_config."""
    refused = answer["refused"]
    if refused and refused["stage"] != "deepspeed" and " ds " not in f" {refused['message']}":
        return TranslatedAnswer(
            unchecked=f"the Trainer refused its arguments before ({refused['message']})"
        )
    return turned_down(case, answer)


def _hear_auto(_: Case, answer: Any) -> TranslatedAnswer:
    if answer["deepspeed"] is None:
        return TranslatedAnswer(
            facts=facts([("parallel.engine", "zero_optimization", "read by the Trainer", None)])
        )
    return TranslatedAnswer(values=flat(_compared(answer["deepspeed"])))


def _compared(config: Mapping[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in config.items() if key not in _SILENT}


_SILENT: Final = ("steps_per_print",)
"""How often DeepSpeed prints, which accelerate turns off whatever the file sets (accelerate 0.30.1
to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`)."""


def _filled(_: Case, answers: Answers) -> Json:
    """The ds_config that the Trainer passes to the engine, with every "auto" filled in."""
    answer = taken(answers, _AUTO)
    if answer is None or answer["deepspeed"] is None:
        return None
    return _compared(answer["deepspeed"])


def auto_programs(script: str, at: Callable[[Case], Where], ask: Asking) -> tuple[Program, ...]:
    """Programs that fill in ds_config.json by the Trainer, and then pass it to the engine.

    `ask` is the question about the arguments, whose answer contains the filled-in file.
    """
    filling = Program(
        _AUTO, DS_CONFIG, script, at, ask, _hear_auto, seconds=SECONDS, unheard=_unfilled
    )
    return (filling, *engine_programs(_filled, after=_AUTO, silent=_SILENT))


# ── peft ─────────────────────────────────────────────────────────────────────────────────────────


Lora = Callable[[Case, Answers], Mapping[str, Json] | None]
"""The arguments of LoraConfig, as adapter_config.json has them; None if there is no adapter."""
Named = Callable[[str], str]
"""A file's name for a key of adapter_config.json; empty if the file has no such key."""


def adapter_program(
    file: str,
    lora: Lora,
    at: Callable[[Case], Where],
    named: Named = str,
    after: str = "",
    *,
    resolves: bool = True,
) -> Program:
    """The program that attaches a file's adapter to the real module tree.

    `resolves` is whether a key's value is that of the adapter's configuration.
    """

    def ask(case: Case, answers: Answers) -> Question | None:
        wanted = lora(case, answers)
        return None if wanted is None else _adapt(case, wanted)

    def hear(case: Case, answer: Any) -> TranslatedAnswer:
        heard = _hear_adapter(case, answer, named)
        return heard if resolves else replace(heard, values={})

    return Program(_LORA, file, SCRIPT, at, ask, hear, after=after, seconds=SECONDS)


def _own_file(case: Case, _: Answers) -> Mapping[str, Json]:
    found: Mapping[str, Json] = values_of(case, ADAPTER)
    return found


def _adapt(case: Case, lora: Mapping[str, Json]) -> Question:
    known = {key: value for key, value in lora.items() if key != "peft_type"}
    named = {"verb": "adapt", "lora": known, "peft_type": lora.get("peft_type")}
    built = case.config if case.plan.model.kind == "causal-lm" else None
    config = {} if built is None or case.architecture.remote_code else {"model_config": built}
    return {**named, **config, "modules": _modules(case), "dtype": "bfloat16"}


def _modules(case: Case) -> list[list[Any]]:
    """The tree as [dotted name, kind, shape, bias], for models whose class is elsewhere."""
    return [
        [name, each.kind, list(each.shape), each.bias]
        for each in case.architecture.modules
        for name in each.names()
    ]


def _hear_adapter(case: Case, answer: Any, named: Named) -> TranslatedAnswer:
    plan = case.plan.adapter
    trained = [f".{path}." for path in answer["trained_in_full"]]
    pairs = [
        (
            "adapter.trainable_parameters",
            named("target_modules"),
            plan.trainable_parameters,
            answer["trainable_parameters"],
        ),
        (
            "adapter.also_train",
            named("modules_to_save"),
            sorted(plan.also_train),
            sorted(
                name for name in plan.also_train if any(f".{name}." in each for each in trained)
            ),
        ),
    ]
    values = flat(answer["values"])
    told = {named(key): value for key, value in {**values, **in_order(case.plan, values)}.items()}
    return TranslatedAnswer(values={key: told[key] for key in told if key}, facts=facts(pairs))


def in_order(plan: Plan, adapter: Mapping[str, Json] | None) -> dict[str, Json]:
    """Module names in the plan's order, because LoraConfig holds them as an unordered set."""
    orders = {"target_modules": plan.adapter.targets, "modules_to_save": plan.adapter.also_train}
    found = adapter or {}
    return {
        key: list(order)
        for key, order in orders.items()
        if isinstance(found.get(key), list) and sorted(found[key]) == sorted(order)
    }


# ── trl ──────────────────────────────────────────────────────────────────────────────────────────


def _model(case: Case, _: Answers) -> Question:
    return {"verb": "model", "yaml": case.text(MODEL_ARGS), **case.machine()}


def _hear_model(case: Case, answer: Any) -> TranslatedAnswer:
    return TranslatedAnswer(values=settled(case, answer["values"]))


def script_question(case: Case, method: str, file: str) -> Question:
    """The question to `trl METHOD` about its file, with ds_config.json beside it."""
    asked = {"verb": "script", "method": method, "yaml": case.text(file), "files": beside(case)}
    return {**asked, **run_of(case)}


def _script(case: Case, _: Answers) -> Question:
    return script_question(case, "sft", SFT)


def hear_script(case: Case, answer: Any) -> TranslatedAnswer:
    """The values that a TRL script reads from its file, and the configurations that it builds."""
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
        pairs += _packed(case, quantised)
    return TranslatedAnswer(values=settled(case, answer["values"]), facts=facts(pairs))


def _packed(case: Case, found: Mapping[str, Json]) -> Iterator[tuple[str, str, Any, Any]]:
    """How 4-bit weights are stored, usually as uint8, and the dtype to which they are expanded."""
    wanted, prefix = case.plan.quantization, "bnb_4bit_"
    storage = DTYPES[wanted.storage] if wanted.storage else "uint8"
    key = f"{prefix}quant_type"
    yield "quantization.format", key, wanted.format, found[key]
    key = f"{prefix}compute_dtype"
    yield "quantization.compute", key, DTYPES[wanted.compute], found[key]
    key = f"{prefix}quant_storage"
    if wanted.storage or case.target.package == TRL:  # else nobody has said which trl it will be
        yield "quantization.storage", key, storage, found.get(key, "uint8")


PROGRAMS: Final = (
    Program(_ARGUMENTS, TRAINING, SCRIPT, where, _arguments, _hear_arguments, seconds=SECONDS),
    *auto_programs(SCRIPT, where, _arguments),
    adapter_program(ADAPTER, _own_file, where),
    Program(_MODEL, MODEL_ARGS, SCRIPT, where, _model, _hear_model, seconds=SECONDS),
    Program(_SFT, SFT, SCRIPT, where, _script, hear_script, seconds=SECONDS),
    card_program(where),
)
