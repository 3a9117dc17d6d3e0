"""The questions to accelerate's launcher about its file; no process is started.

The file is loaded, merged with the launcher's defaults and turned into the variables of each
process, from which the plugin is built that a training script would get.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.environments import EnvironmentUnavailable
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
)
from tunec.schemas.dotted_paths import flat
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.packages import PACKAGE

SCRIPT: Final = "tunec.targets.accelerate.consumer"
_FILE: Final = ACCELERATE_CONFIG.name
_FSDP: Final = "fsdp_config.fsdp_"
_POLICIES: Final[Mapping[str | None, str]] = {
    "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
    None: "NO_WRAP",
}
_SAME: Final = (
    *("sharding_strategy", "reshard_after_forward", "state_dict_type", "forward_prefetch"),
    *("use_orig_params", "sync_module_states", "cpu_ram_efficient_loading", "min_num_params"),
    *("activation_checkpointing",),
)
"""Fields of `FullyShardedDataParallelPlugin` with the same name in the section."""


def where(case: Case) -> Where:
    """The known environment of the case's release, or one with only that release."""
    version = str(case.dialect[PACKAGE])
    try:
        pins = choose(PACKAGE, version).requirements
    except EnvironmentUnavailable:
        pins = (f"{PACKAGE}=={version}",)
    pin = next(each for each in pins if each.startswith(f"{PACKAGE}=="))
    return Where(PACKAGE, pin.partition("==")[2], pins)


def _ask(case: Case, _: Answers) -> Question:
    """The question: the file, beside the part of ds_config.json that the plugin reads."""
    plan, files = case.plan, {}
    if plan.parallel.engine == "deepspeed":
        beside = {
            "train_micro_batch_size_per_gpu": plan.batch.micro,
            "gradient_accumulation_steps": plan.batch.accumulation,
            "zero_optimization": {"stage": plan.zero.stage},
        }
        files = {"ds_config.json": json.dumps(beside)}
    return {"verb": "resolve", "yaml": case.text(_FILE), "files": files, **case.machine()}


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    values = flat(answer["config"])
    if answer["arguments"]["use_fsdp"]:
        values |= _section(answer["plugin"])
    return TranslatedAnswer(values=values, facts=tuple(_facts(case.plan, answer)))


def _section(plugin: Mapping[str, Any]) -> dict[str, Json]:
    """The plugin's fields under the names of the section `fsdp_config`."""
    found = {name: plugin[name] for name in _SAME if plugin.get(name) is not None}
    found["version"] = plugin.get("fsdp_version", 1)
    found["auto_wrap_policy"] = _POLICIES.get(plugin["auto_wrap_policy"], "")
    found["backward_prefetch"] = plugin.get("backward_prefetch") or "NO_PREFETCH"
    found["transformer_layer_cls_to_wrap"] = ",".join(
        plugin.get("transformer_cls_names_to_wrap") or ()
    )
    found["offload_params"] = _offloads(plugin.get("cpu_offload"))
    return {_FSDP + name: value for name, value in found.items()}


def _offloads(policy: Any) -> bool:
    """Whether parameters are offloaded, by FSDP 1's `CPUOffload` or by one of FSDP 2's policies."""
    if isinstance(policy, Mapping):
        return bool(policy.get("offload_params", "pin_memory" in policy))
    return bool(policy)


def _facts(plan: Plan, answer: Mapping[str, Any]) -> Iterator[Fact]:
    """The settings that the processes receive, independent of single keys."""
    arguments, told = answer["arguments"], answer["environment"]
    engines = {"deepspeed": "use_deepspeed", "fsdp": "use_fsdp", "ddp": "multi_gpu"}
    chosen = [engine for engine, name in engines.items() if arguments.get(name)]
    yield Fact("parallel.engine", "distributed_type", plan.parallel.engine, *(chosen or ["none"]))
    yield Fact("parallel.world", "num_processes", plan.parallel.world, arguments["num_processes"])
    shared = int(told.get("PARALLELISM_CONFIG_SP_SIZE") or 1)
    yield Fact("parallel.sequence", "sp_size", plan.parallel.sequence, shared)
    mixed = plan.precision.compute if plan.states.autocast else "no"
    if plan.parallel.engine != "deepspeed":
        said = told.get("ACCELERATE_MIXED_PRECISION")
        yield Fact("states.autocast", "mixed_precision", mixed, said)
    else:
        key = "deepspeed_config.zero3_init_flag"
        wanted = plan.zero.stage == 3 and plan.model.kind != "diffusion"
        yield Fact("zero.stage", key, wanted, answer["plugin"]["zero3_init_flag"])


PROGRAMS: Final = (Program("accelerate launch", _FILE, SCRIPT, where, _ask, _hear),)
