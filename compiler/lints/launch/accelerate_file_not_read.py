"""An accelerate file beside a command that does not read it."""

from collections.abc import Iterator

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    commands = [e for e in launches(run) if e.value("launcher") not in (*STARTERS, "trl")]
    if not commands or any(e.value("launcher") == "accelerate" for e in commands):
        return
    first = commands[0]
    place = first.get("launcher")
    for document in run.of("accelerate"):
        kind = document.get("distributed_type") or next(iter(document.found.values()), None)
        if kind is None or place is None or first.value("launcher") == "simpletuner":
            continue
        yield Finding(
            f"{first.value('launcher')} starts the run, and does not read {document.name}",
            (
                kind.key_label("nothing of this file holds"),
                place.label("no `accelerate launch`", primary=False),
            ),
            (
                (
                    "precision, DeepSpeed, FSDP and processes are then those of the command and of "
                    "the trainer's own file"
                ),
            ),
            f"start it with accelerate launch --config_file {document.name}",
        )


RULE = Rule(
    name="accelerate-file-not-read",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: the only "
            "reader of the file; `Accelerator` reads the environment that it sets"
        ),
    ),
    check=_check,
)
