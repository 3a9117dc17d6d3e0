"""Prepares a rehearsal: from a plan and its files to the input of the ranks."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.architecture import UnknownArchitecture, UnusableConfig, derive
from tunec.compiler.analyses.trainable import trainable_parameters
from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.consumers.environments import prepare as environment
from tunec.compiler.ir.plan import Plan
from tunec.compiler.rehearse.adapt import (
    ADAPTER,
    DEEPSPEED,
    SCRIPTED,
    TRAINING,
    AdaptedFiles,
    Device,
    adapt,
)
from tunec.compiler.rehearse.rank_processes import Job
from tunec.compiler.rehearse.shrink import (
    HEAD,
    QUANTISED_HEAD,
    SEQUENCE,
    VOCABULARY,
    Unrehearsable,
    shrunk,
)
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.objective_facts import OBJECTIVES

FILES: Final[Mapping[str, tuple[str, ...]]] = {"huggingface": (TRAINING,), "trl": SCRIPTED}
"""The targets that can be rehearsed, and their files that may hold the Trainer's arguments."""
LAUNCH: Final = "launch"
SCRIPT: Final = "launch.sh"

_SHOWS_DEVICES: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES")


class Rehearsal(Struct, frozen=True):
    """A job, and the values that its reports are compared with."""

    job: Job
    plan: Plan
    ranks: int
    trainable: int
    """The number of parameters that the plan trains in the shrunk model."""
    hidden: Mapping[str, str]
    """Slots that the rehearsal cannot show, with the reasons."""


def needed(cases: Sequence[Case]) -> tuple[str, ...]:
    """The packages that the ranks import."""
    names = ["torch", "transformers", "accelerate"]
    trained = [case for case in cases if case.target.name in FILES]
    delivered = {name for case in trained for name in case.delivered}
    scripted = bool({*SCRIPTED} & delivered) and TRAINING not in delivered
    names += ["peft"] if ADAPTER in delivered or scripted else []
    names += ["trl"] if scripted or any(_is_quantised(case.plan) for case in trained) else []
    names += ["deepspeed"] if DEEPSPEED in delivered else []
    return tuple(names)


def _is_quantised(plan: Plan) -> bool:
    return plan.quantization.format != "none"


_BITSANDBYTES: Final = "bitsandbytes"
_PIN: Final = f"{_BITSANDBYTES}==0.50.2"
"""A release with CPU kernels for nf4, fp4 and int8, forward and backward."""


class Interpreter(Struct, frozen=True):
    """The Python that runs the ranks, and the reason if it cannot quantise the base."""

    python: str = sys.executable
    unquantised: str = ""


def interpreter(cases: Sequence[Case]) -> Interpreter:
    """The running Python; for a quantised base, one that has bitsandbytes too."""
    quantised = any(_is_quantised(case.plan) for case in cases)
    if not quantised or not absent((_BITSANDBYTES,)):
        return Interpreter()
    try:
        return Interpreter(str(environment((_PIN,)).python))
    except EnvironmentUnavailable as reason:
        return Interpreter(unquantised=f"the base is rehearsed unquantised: {reason}")


_HERE: Final = Interpreter()


def prepare(
    cases: Sequence[Case],
    config: Mapping[str, Any],
    device: Device,
    ranks: int,
    steps: int,
    chosen: Interpreter = _HERE,
) -> Rehearsal:
    """Shrink the model, adapt the files, and choose the launcher; `steps` are optimizer steps.

    `cases` are the cases of one plan, `config` is the model's config.json. Raises Unrehearsable.
    """
    case = next((each for each in cases if each.target.name in FILES), None)
    if case is None:
        raise Unrehearsable(f"only files of {' and '.join(FILES)} are rehearsed")
    plan = case.plan
    _refuse(case, config)
    quantised = _is_quantised(plan) and not chosen.unquantised
    small = shrunk(config, QUANTISED_HEAD if quantised else HEAD)
    ranks = min(ranks, plan.parallel.data)
    texts = {name: each.text for name, each in case.delivered.items()}
    script = _script(case)
    why = chosen.unquantised
    adapted = adapt(texts, plan, device, ranks, unquantised=why, script=script)
    launched = _launched(cases, plan, ranks)
    job = Job(
        adapted.files,
        {
            **_question(plan, small, adapted, device, ranks, steps),
            "script": script,
            "quantised": quantised,
        },
        launched.launcher,
        launched.environment,
        _modules(adapted.files, script, quantised),
        chosen.python,
    )
    return Rehearsal(
        job, plan, ranks, _trainable(small, plan), {**adapted.hidden, **launched.hidden}
    )


def _modules(files: Iterable[str], script: str, quantised: bool) -> list[str]:
    """The modules that each rank will import, given its files."""
    names = ["torch.distributed.run", "tunec.compiler.rehearse.live.training"]
    if DEEPSPEED in files:
        # deepspeed 0.19.8 runtime/zero/utils.py `is_zero_supported_optimizer` imports it
        names += ["deepspeed", "deepspeed.runtime.zero.muon.muon_optimizer"]
    if ADAPTER in files:
        names += ["peft"]
    if script != TRAINING:
        names += ["datasets", *(f"trl.trainer.{name}_trainer" for name in ("sft", "dpo", "reward"))]
    return [*names, "trl", _BITSANDBYTES] if quantised else names


def _script(case: Case) -> str:
    """The file with the Trainer's arguments."""
    held = [name for name in FILES[case.target.name] if name in case.delivered]
    return held[0] if held else FILES[case.target.name][0]


def _refuse(case: Case, config: Mapping[str, Any]) -> None:
    plan, family = case.plan, case.plan.model.family
    if case.architecture.remote_code or "auto_map" in config:
        raise Unrehearsable(
            f"the family {family!r} is built by code in the model's own repository "
            "(trust_remote_code), which a rehearsal does not run"
        )
    if plan.model.kind != "causal-lm" and plan.objective.kind != "reward":
        raise Unrehearsable(
            f"only causal language models and reward models are rehearsed, and {plan.model.path} "
            f"is of the kind {plan.model.kind}"
        )
    if plan.parallel.engine == "fsdp":
        # 0.30.1 to 1.15.0 state.py `AcceleratorState.__init__`: MULTI_CPU is none of the types for
        # which the plugin or ACCELERATE_USE_FSDP is looked at
        raise Unrehearsable("FSDP is not rehearsed: accelerate cannot run it on a CPU")
    if OBJECTIVES[plan.objective.kind].generates:
        raise Unrehearsable(
            f"{plan.objective.kind.upper()} is not rehearsed: the model would have to generate "
            "answers"
        )
    if plan.parallel.tensor > 1 or plan.parallel.sequence > 1:
        raise Unrehearsable("only data parallel ranks are rehearsed")


def _question(
    plan: Plan,
    small: Mapping[str, Any],
    adapted: AdaptedFiles,
    device: Device,
    ranks: int,
    steps: int,
) -> dict[str, Any]:
    batch = plan.batch.micro * plan.batch.accumulation * ranks
    return {
        "model_config": small,
        "device": device,
        "dtype": adapted.dtype,
        "attention": adapted.attention,
        "steps": min(steps, plan.schedule.steps or steps),
        "samples": math.ceil(2 * steps * batch / min(plan.schedule.epochs or 1, 1)),
        "sequence": SEQUENCE,
        "vocabulary": VOCABULARY,
    }


def _trainable(small: Mapping[str, Any], plan: Plan) -> int:
    try:
        return trainable_parameters(derive(small), plan.adapter)
    except (UnknownArchitecture, UnusableConfig) as fault:
        raise Unrehearsable(f"the shrunk model has no known architecture: {fault}") from None


# ── the launcher ─────────────────────────────────────────────────────────────────────────────────


class _Launched(Struct, frozen=True):
    launcher: Sequence[str]
    environment: Mapping[str, str]
    hidden: Mapping[str, str]


def _launched(cases: Sequence[Case], plan: Plan, ranks: int) -> _Launched:
    """The emitted launcher, with its processes reduced in the same way as the plan's."""
    case = next((each for each in cases if each.target.name == LAUNCH), None)
    if case is None or SCRIPT not in case.delivered:
        reason = "launch scripts are not rehearsed; torchrun starts the ranks"
        return _Launched(_torchrun(ranks), {}, {"launch.launcher": reason})
    said = values_of(case, SCRIPT)
    written = int(said.get("nodes", 1)) * int(said.get("per_node", 1))
    processes = max(1, round(written * ranks / plan.parallel.world))
    environment = {
        str(name): str(value)
        for name, value in dict(said.get("environment") or {}).items()
        if name not in _SHOWS_DEVICES
    }
    return _starting(str(said.get("launcher", "torchrun")), processes, environment)


def _starting(name: str, processes: int, environment: Mapping[str, str]) -> _Launched:
    if name == "python" and processes == 1:
        return _Launched((), environment, {})
    hidden = {}
    if name != "torchrun":
        hidden["launch.launcher"] = f"torchrun starts the ranks instead of {name}"
    return _Launched(_torchrun(processes), environment, hidden)


def _torchrun(processes: int) -> list[str]:
    """Flags for processes of one node that meet at a free port (torch distributed/run.py)."""
    # what `run` there makes of --standalone
    meeting = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    return [*meeting, f"--nproc-per-node={processes}"]


def absent(names: Sequence[str]) -> tuple[str, ...]:
    """The packages that this interpreter does not have."""
    return tuple(name for name in names if find_spec(name) is None)
