"""Settings of torch.compile in accelerate's file, and no backend to compile by."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BACKENDS: Final = ("dynamo_config.dynamo_backend", "dynamo_config.backend", "dynamo_backend")
_SETTINGS: Final = ("mode", "use_fullgraph", "use_dynamic", "use_regional_compilation")
_OFF: Final = (None, False, "default")


def _check(run: Run) -> Iterator[Finding]:
    if any(each.get("flags.dynamo_backend") is not None for each in launches(run, "accelerate")):
        return
    for document in run.of("accelerate"):
        backends = [at for key in _BACKENDS if (at := document.get(key)) is not None]
        if document.is_view or any(str(at.value).lower() != "no" for at in backends):
            continue
        keys = (f"dynamo_config.{pre}{name}" for name in _SETTINGS for pre in ("dynamo_", ""))
        said = [at for key in keys if (at := document.get(key)) and at.value not in _OFF]
        if said:
            yield Finding(
                f"{said[0].path} compiles nothing: no backend is named",
                (
                    *(at.label("not used", primary=at is said[0]) for at in said),
                    *(at.label("", primary=False) for at in backends[:1]),
                ),
                ("the backend is no where it is left out",),
                "write dynamo_backend: INDUCTOR, or remove the block",
            )


RULE = Rule(
    name="compile-mode-without-backend",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: "
            'args.dynamo_backend = "no" where it is None'
        ),
    ),
    check=_check,
)
