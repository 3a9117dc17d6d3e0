"""How OpenRLHF's programs are run on their flags, and how their answers are read."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    facts,
    known_environment,
    taken,
)
from tunec.schemas.data_paths import chosen
from tunec.targets.deepspeed.verify import engine_programs
from tunec.targets.huggingface.model import DTYPES
from tunec.targets.huggingface.verify import SECONDS, adapter_program, in_order
from tunec.targets.openrlhf.packages import PACKAGE, RELEASES
from tunec.targets.openrlhf.target import DPO, SFT, STYLE
from tunec.targets.openrlhf.target import PROGRAMS as MODULES
from tunec.targets.rows import has_adapter
from tunec.targets.scripts.command import FLAGS
from tunec.targets.scripts.verify import flag_words, shell_programs

SCRIPT: Final = "tunec.targets.openrlhf.consumer"
Told = Iterator[tuple[str, str, Any, Any]]
_GATHERS: Final = ("zero_optimization.stage3_gather_16bit_weights_on_model_save",)
"""A key that OpenRLHF does not set, since it gathers the weights itself."""


def where(case: Case) -> Where:
    """The environment of a release. Raises EnvironmentUnavailable for one that is only read."""
    return known_environment(PACKAGE, case.version, RELEASES)


def _ask(file: str, case: Case, _: Answers) -> Question | None:
    if file not in case.delivered:
        return None
    return {
        "verb": "resolve",
        "program": MODULES[file],
        "argv": flag_words(case, file),
        "samples": case.plan.data.samples,
        **case.machine(),
    }


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    values = {f"{FLAGS}.{key}": value for key, value in answer["values"].items()}
    key = f"{FLAGS}.ds.lora.target_modules"
    values[key] = in_order(case.plan, {"target_modules": values[key]}).get(
        "target_modules", values[key]
    )
    told = [
        (slot, f"{FLAGS}.{key}", wanted, found)
        for slot, key, wanted, found in _facts(case.plan, answer["derived"])
    ]
    return TranslatedAnswer(values=values, facts=facts(told))


# ── what the programs make of their flags ────────────────────────────────────────────────────────


def _facts(plan: Plan, told: Mapping[str, Any]) -> Told:
    yield from _model(plan, told)
    yield from _loop(plan, told)
    yield from _rate(plan, told)
    evaluation = [plan.data.evaluation] if plan.data.evaluation else []
    trained = [chosen(each).path for each in training_data(plan)]
    sets = [trained, *([chosen(each).path] for each in evaluation)]
    yield "data.train", "data.dataset", sets, [names for names, _ in told["sets"]]
    yield "data.sequence", "data.max_len", plan.data.sequence, told["data"][0]["max_length"]
    if plan.objective.kind == "dpo":
        yield "objective.beta", "model.beta", plan.objective.beta, told["beta"]
        yield from _reference(plan, told["references"])


def _model(plan: Plan, told: Mapping[str, Any]) -> Told:
    model, bits = told["model"], told["model"]["quantization"]
    yield "model.path", "model.model_name_or_path", plan.model.path, model["name"]
    key = "ds.attn_implementation"
    yield "attention.implementation", key, plan.attention.implementation, model["attention"]
    yield "states.weights", "ds.param_dtype", DTYPES[plan.states.weights], model["dtype"]
    packed = plan.quantization.format != "none"
    yield "quantization.format", "ds.load_in_4bit", packed, bool(bits)
    if bits:
        key, wanted = "ds.load_in_4bit", plan.quantization
        yield "quantization.format", key, wanted.format, bits["bnb_4bit_quant_type"]
        yield "quantization.double", key, wanted.double, bits["bnb_4bit_use_double_quant"]
        dtype = DTYPES[wanted.compute]
        yield "quantization.compute", key, dtype, bits["bnb_4bit_compute_dtype"]
    yield "adapter.kind", "ds.lora.rank", has_adapter(plan), told["adapter"] is not None
    made, key = told["checkpointing"], "model.gradient_checkpointing_enable"
    recomputes = plan.activation_checkpointing.mode == "layer"
    yield "activation_checkpointing.mode", key, recomputes, made is not None
    if made:
        reentrant = made["gradient_checkpointing_kwargs"]["use_reentrant"]
        wanted_variant = plan.activation_checkpointing.reentrant
        yield "activation_checkpointing.reentrant", key, wanted_variant, reentrant


def _loop(plan: Plan, told: Mapping[str, Any]) -> Told:
    loader = told["loader"]
    yield "batch.micro", "train.micro_batch_size", plan.batch.micro, loader["batch"]
    key = "train.batch_size"
    yield "batch.accumulation", key, plan.batch.accumulation, told["accumulation"]
    workers = plan.runtime.dataloader_workers
    yield "runtime.dataloader_workers", "data.dataloader_num_workers", workers, loader["workers"]
    pinned = plan.runtime.dataloader_pin_memory
    yield "runtime.dataloader_pin_memory", "train.seed", pinned, loader["pinned"]
    yield "schedule.epochs", "train.max_epochs", plan.schedule.epochs, told["epochs"]


def _rate(plan: Plan, told: Mapping[str, Any]) -> Told:
    """The steps of one epoch, the kind and end of the schedule, and the warmup steps.

    For several epochs some programs count only whole batches: `training.totals`.
    """
    made, wanted = told["schedule"], plan.schedule
    yield "schedule.kind", "lr_scheduler", wanted.kind, made["kind"]
    if wanted.steps is None:
        return
    if wanted.epochs == 1:
        yield "schedule.steps", "train.max_epochs", wanted.steps, told["steps"]
    key = "lr_warmup_ratio"
    yield "schedule.warmup_steps", key, wanted.warmup_steps, made["warmup"]
    least = dict(wanted.arguments).get("min_lr_rate")
    if least is not None:
        yield "schedule.arguments", "min_lr_ratio", round(float(least), 9), round(made["last"], 9)


def _reference(plan: Plan, references: Any) -> Told:
    """The reference has the same weights, and is sharded if the trained model is."""
    key = "ref.model_name_or_path"
    (reference,) = references
    yield "objective.reference", key, plan.model.path, reference["name"]
    stage = reference["config"]["zero_optimization"]["stage"]
    yield "zero.stage", key, 3 if plan.zero.stage == 3 else 0, stage


# ── PEFT, and DeepSpeed's configuration ──────────────────────────────────────────────────────────


def _lora(program: str, case: Case, answers: Answers) -> Mapping[str, Json] | None:
    answer = taken(answers, program)
    adapter: Mapping[str, Json] | None = None if answer is None else answer["derived"]["adapter"]
    return adapter and {**adapter, **in_order(case.plan, adapter)}


_NAMES: Final = {"r": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout"}


def _named(key: str) -> str:
    known = {**_NAMES, "target_modules": "target_modules"}
    return f"{FLAGS}.ds.lora.{known[key]}" if key in known else ""


def _configured(program: str, _: Case, answers: Answers) -> Json:
    """The configuration that the strategy passes to DeepSpeed."""
    answer = taken(answers, program)
    return None if answer is None else answer["derived"]["deepspeed"]


def _programs(file: str) -> tuple[Program, ...]:
    program = MODULES[file]
    ask, lora = partial(_ask, file), partial(_lora, program)
    return (
        Program(program, file, SCRIPT, where, ask, _hear, seconds=SECONDS),
        adapter_program(file, lora, where, _named, after=program),
        *engine_programs(partial(_configured, program), program, _GATHERS, file, where),
        *shell_programs(file, STYLE),
    )


PROGRAMS: Final = (*_programs(SFT), *_programs(DPO))
