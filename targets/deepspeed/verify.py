"""The questions to DeepSpeed about ds_config.json, and the reading of its answers."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Fact,
    NotAsked,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    facts,
    known_environment,
    refusal,
    taken,
    turned_down,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.batch import BATCH, TENSOR
from tunec.targets.deepspeed.config import NAME
from tunec.targets.deepspeed.optimizer import optimizer
from tunec.targets.deepspeed.precision import PRECISION
from tunec.targets.deepspeed.reader import PACKAGE, PLAIN
from tunec.targets.deepspeed.zero import ZERO

SCRIPT: Final = "tunec.targets.deepspeed.consumer"
WORDS: Final[Mapping[str, str]] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""torch's names for tunec's dtypes."""

_CLIENTS: Final[Mapping[str, str]] = {"adamw": "AdamW", "sgd": "SGD"}
_STAND_IN: Final = "SGD"
"""The class that replaces an optimizer that the training script brings and torch does not have."""

BUILT: Final[Mapping[tuple[str, str, bool], str]] = {
    ("adamw", "fused", False): "AdamW",
    ("adamw", "foreach", False): "AdamW",
    ("adamw", "loop", False): "AdamW",
    ("adamw", "own", False): "FusedAdam",
    ("sgd", "foreach", False): "SGD",
    ("sgd", "fused", False): "SGD",
    ("sgd", "loop", False): "SGD",
    ("lion", "own", False): "FusedLion",
    ("muon", "own", False): "MuonWithAuxAdam",
    ("adamw", "fused", True): "DeepSpeedCPUAdam",
    ("adamw", "own", True): "DeepSpeedCPUAdam",
    ("lion", "own", True): "DeepSpeedCPULion",
}
"""The optimizer class that steps, by name, kernel and whether the optimizer is offloaded: deepspeed
0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`."""

_NO_CPU_CODE: Final = "not been implemented on CPU backend"

Configured = Callable[[Case, Answers], Json]
"""The ds_config that the engine gets; None if another program refused before there was one."""


def where(case: Case) -> Where:
    """The environment of the release of DeepSpeed that the case names."""
    return known_environment(PACKAGE, case.dialect[PACKAGE])


def beside(case: Case) -> dict[str, str]:
    """The text of ds_config.json by its name, for a program that reads it beside its own file."""
    return {NAME: case.text(NAME)} if NAME in case.delivered else {}


def named_by(case: Case, file: str) -> dict[str, str]:
    """The text of ds_config.json by the path with which a trainer's file names it."""
    said = values_of(case, file).get("deepspeed")
    return {said: case.text(NAME)} if isinstance(said, str) and NAME in case.delivered else {}


def delivered(case: Case, _: Answers) -> Json:
    """The file as it is written: nothing fills it in before DeepSpeed reads it."""
    return values_of(case, NAME)


def engine_programs(
    configured: Configured,
    after: str = "",
    silent: Collection[str] = (),
    file: str = NAME,
    at: Callable[[Case], Where] = where,
) -> tuple[Program, ...]:
    """The programs that check DeepSpeedConfig, and that start the engine on a small model.

    `silent` are keys that a program in between removes from the file. If a program builds the
    configuration itself, `file` is its input, and values are reported by slot.
    """

    def hear(case: Case, answer: Any) -> TranslatedAnswer:
        heard = hear_config(case, answer)
        if file != NAME:
            return TranslatedAnswer(facts=(*heard.facts, *_settings(case, heard.values, silent)))
        kept = {key: value for key, value in heard.values.items() if key not in silent}
        return replace(heard, values=kept)

    def config(case: Case, answers: Answers) -> Question | None:
        content = configured(case, answers)
        return None if content is None else {"verb": "resolve", **_common(case, content)}

    def initialize(case: Case, answers: Answers) -> Question | None:
        if taken(answers, _CONFIG) is None:
            return None
        content = configured(case, answers)
        if "nvme" in (case.plan.zero.offload_optimizer, case.plan.zero.offload_param):
            raise NotAsked("the engine would open files on NVMe, which is the cluster's")
        return {"verb": "initialize", **_common(case, content)}

    return (
        Program(_CONFIG, file, SCRIPT, at, config, hear, after=after, unheard=_unheard),
        Program(
            _ENGINE, file, SCRIPT, at, initialize, hear_engine, after=_CONFIG, unheard=_unheard
        ),
    )


_READ: Final = (*BATCH, *PRECISION, *optimizer(PLAIN), *ZERO, *TENSOR)
"""Rows that read the engine's resolved values if the configuration is in no file."""


def _settings(case: Case, values: Mapping[str, Json], silent: Collection[str]) -> Iterator[Fact]:
    """A fact for each slot that a row reads from its keys' resolved values."""
    plan, dialect = case.plan, case.dialect
    for row in _READ:
        if not (row.slots and row.holds_in(dialect) and row.when(plan)):
            continue
        found = {key: values[key] for key in row.keys if key in values}
        said = row.read(found) if found else row.defaults_at(dialect[PACKAGE])
        key = next(iter(found), row.keys[0] if row.keys else "")
        for slot, value in said.items():
            if slot in row.slots and key not in silent:
                yield Fact(slot, key, plan[slot], value)


_CONFIG, _ENGINE = "DeepSpeedConfig", "deepspeed.initialize"


def _common(case: Case, content: Mapping[str, Json]) -> dict[str, Any]:
    """The input of both programs: the file, the declared machine, and the script's optimizer."""
    plan = case.plan
    machine = {**case.machine(), "world_size": plan.parallel.data}
    environment = dict(plan.launch.environment)
    asked = {**machine, "config": content, "environment": environment}
    if "optimizer" in content:
        return asked
    return {**asked, "client_optimizer": _CLIENTS.get(plan.optimizer.name, _STAND_IN)}


def _unheard(case: Case, answer: Any) -> TranslatedAnswer | None:
    """The outcome if there is no answer: a missing CPU kernel for an optimizer is not a refusal."""
    if _NO_CPU_CODE in refusal(answer):
        return TranslatedAnswer(
            unchecked=f"deepspeed has no code for {case.plan.optimizer.name} on a CPU"
        )
    return turned_down(case, answer)


def hear_config(case: Case, answer: Any) -> TranslatedAnswer:
    """Every key's resolved value, absent keys included, and what the engine's checks decided."""
    values = {key: value for key, value in answer["values"].items() if value is not None}
    plan, engine = case.plan, answer["engine"]
    pairs = [
        ("precision.compute", "bf16.enabled", WORDS[plan.precision.compute], engine["model_dtype"]),
        (
            "states.gradients",
            "data_types.grad_accum_dtype",
            WORDS[plan.states.gradients],
            engine["gradient_accumulation_dtype"],
        ),
    ]
    return TranslatedAnswer(
        values=values,
        facts=facts([*pairs, *_optimizer(plan, answer["values"], engine)]),
        ignored=tuple(answer["ignored"]),
    )


def _optimizer(plan: Plan, values: Mapping[str, Json], engine: Mapping[str, Any]) -> Any:
    """The optimizer that DeepSpeed builds, if the file names one."""
    offloaded = plan.zero.offload_optimizer != "none"
    built = BUILT.get((plan.optimizer.name, plan.optimizer.kernel, offloaded))
    if built is not None and values.get("optimizer.type") and engine["optimizer"]:
        yield "optimizer.name", "optimizer.type", built, engine["optimizer"]


def hear_engine(case: Case, answer: Any) -> TranslatedAnswer:
    """World size, batches, stage, clipping and dtype of the started engine."""
    plan, engine = case.plan, answer["engine"]
    batch = "train_micro_batch_size_per_gpu"
    return TranslatedAnswer(
        facts=facts(
            [
                ("parallel.data", "world size", plan.parallel.data, engine["world_size"]),
                ("batch.micro", batch, plan.batch.micro, engine[batch]),
                (
                    "batch.accumulation",
                    "gradient_accumulation_steps",
                    plan.batch.accumulation,
                    engine["gradient_accumulation_steps"],
                ),
                (
                    "batch.global",
                    "train_batch_size",
                    plan.batch.global_,
                    engine["train_batch_size"],
                ),
                ("zero.stage", "zero_optimization.stage", plan.zero.stage, engine["zero_stage"]),
                (
                    "optimizer.max_grad_norm",
                    "gradient_clipping",
                    plan.optimizer.max_grad_norm,
                    engine["gradient_clipping"],
                ),
                (
                    "precision.compute",
                    "bf16.enabled",
                    [WORDS[plan.precision.compute]],
                    engine["parameters"],
                ),
            ]
        )
    )


PROGRAMS: Final = engine_programs(delivered)
