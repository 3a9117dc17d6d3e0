"""plan_launch: how the processes are started on the chosen devices."""

import shlex

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, slot, spec
from tunec.compiler.start_commands import UNNAMED
from tunec.schemas.terms import VISIBLE, Engine, Launcher

_USUAL: dict[Engine, Launcher] = {
    "none": "python",
    "ddp": "torchrun",
    "deepspeed": "deepspeed",
    "fsdp": "accelerate",
}


def plan_launch(facts: Facts, draft: Draft) -> Outcome:
    """Choose the launcher and the environment."""
    scribe = Scribe(facts)
    _launcher(scribe, draft)
    environment = environment_of(draft)
    scribe.say(
        "launch.environment",
        environment,
        "variables that the devices and the precision require",
        slot("devices.visible"),
        slot("devices.vendor"),
        slot("precision.deprecated_fp16"),
    )
    _script(scribe)
    return scribe.outcome()


def _script(scribe: Scribe) -> None:
    """Decide the user's script; a trainer's own program replaces the default name."""
    run = scribe.facts.spec.run
    words = (run.script, *run.arguments) if run.script is not None else (UNNAMED,)
    why = "as the spec has it" if run.script is not None else "not given: the usual name"
    scribe.say("launch.script", shlex.join(words), why, spec("run"))


def _launcher(scribe: Scribe, draft: Draft) -> None:
    asked = scribe.facts.spec.launcher
    usual, why = _usual(scribe.facts, draft)
    chosen = scribe.say(
        "launch.launcher",
        asked or usual,
        "the spec asks for it" if asked else why,
        spec("launcher"),
        slot("parallel.engine"),
    )
    if draft.parallel.sequence > 1 and chosen != "accelerate":
        scribe.error(
            "E0803",
            f"{chosen} cannot express that {draft.parallel.sequence} ranks share a sequence",
            scribe.place("launch.launcher", "launcher"),
            help="use accelerate, whose file configures the trainer",
        )
    if chosen == "python" and not scribe.facts.starts_workers:
        _alone(scribe, draft)


def _alone(scribe: Scribe, draft: Draft) -> None:
    """Report an error if the plan needs more than the one process that python starts."""
    engine = draft.parallel.engine
    if draft.parallel.world > 1 and engine != "none":
        scribe.error(
            "E0803",
            f"python starts one process, but the plan has {draft.parallel.world}",
            scribe.place("launch.launcher", "launcher"),
            help="use torchrun, deepspeed or accelerate",
        )
    elif engine == "deepspeed" and scribe.facts.spec.run.script is None:
        scribe.error(
            "E0803",
            "python starts no group of processes, which DeepSpeed joins even if it is alone",
            scribe.place("launch.launcher", "launcher"),
            notes=("it would look for one by mpi4py, and end where that is not installed",),
            help="use deepspeed, torchrun or accelerate",
        )


def _usual(facts: Facts, draft: Draft) -> tuple[Launcher, str]:
    engine = draft.parallel.engine
    if facts.starts_workers:
        return "python", "the trainer's program starts the other processes itself"
    if draft.model.kind == "diffusion":
        return "accelerate", "diffusion trainers use it"
    if draft.parallel.sequence > 1:
        return "accelerate", "only its file can express that ranks share a sequence"
    if engine == "deepspeed" and not all(name.isdigit() for name in draft.devices.visible):
        # deepspeed/launcher/runner.py reads device numbers only
        return "torchrun", "the deepspeed launcher takes device numbers, not UUIDs"
    return _USUAL[engine], f"the usual one for engine {engine}"


def environment_of(draft: Draft) -> tuple[tuple[str, str], ...]:
    """Environment variables, in the order in which they are exported."""
    variables: list[tuple[str, str]] = []
    if draft.devices.visible:
        if draft.devices.vendor == "nvidia":
            variables.append(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
        variables.append((VISIBLE[draft.devices.vendor], ",".join(draft.devices.visible)))
    if draft.precision.deprecated_fp16 and draft.parallel.engine == "deepspeed":
        variables.append(("DS_ALLOW_DEPRECATED_FP16", "1"))
    return tuple(variables)
