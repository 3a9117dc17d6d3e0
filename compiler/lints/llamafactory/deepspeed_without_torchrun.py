"""LLaMA-Factory starts one process without torchrun, and DeepSpeed is asked for."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FORCED = ("FORCE_TORCHRUN", "USE_MCA")
_ON = ("1", "true", "y")


def _check(run: Run) -> Iterator[Finding]:
    for launcher in launches(run, "llamafactory"):
        at, seen = _asked(run), _seen(run, launcher)
        place = launcher.get("launcher")
        if at is None or place is None or seen is None or seen[0] != 1 or _is_forced(launcher):
            continue
        yield Finding(
            "deepspeed is refused: llamafactory-cli starts one process by itself for one device",
            (
                at.label("refused"),
                place.label("", primary=False),
                *([seen[1].label("one device", primary=False)] if seen[1] else []),
            ),
            ("Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training",),
            "write FORCE_TORCHRUN=1 before the command",
        )


def _asked(run: Run) -> Place | None:
    for document in run.of("llamafactory"):
        at = document.get("deepspeed")
        if at is not None and at.value and not document.is_view:
            return at
    return None


def _is_forced(launcher: Document) -> bool:
    if launcher.unknown & {"environment"}:
        return True
    said = (variable(launcher, name) for name in _FORCED)
    return any(each is not None and str(each.value).lower() in _ON for each in said)


def _seen(run: Run, launcher: Document) -> tuple[int, Place | None] | None:
    """Devices that the command sees, and what says so; None: unknown."""
    visible = variable(launcher, "CUDA_VISIBLE_DEVICES")
    names = listed(visible)
    if names is not None:
        return len(names), visible
    cluster = run.environment.cluster
    return (max(n.device_count for n in cluster.nodes), None) if cluster else None


RULE = Rule(
    name="deepspeed-without-torchrun",
    severity="error",
    consequence="parse",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`: Please use "
            "`FORCE_TORCHRUN=1` to launch DeepSpeed training; launcher.py `launch`: torchrun for "
            "more than one device; extras/misc.py `is_env_enabled`"
        ),
    ),
    check=_check,
)
