"""Rules about accelerate's launcher and its file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Edit, Fix, Label
from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.launch import every_launch, flags, launches
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.launch.lines import behind


@rule("note", "silent", consumers=("accelerate",), reads=("accelerate:*",))
def accelerate_file_not_read(run: LintContext) -> Iterator[Finding]:
    """An accelerate file beside a command that does not read it."""
    commands = [e for e in launches(run) if e.value("launcher") not in (*STARTERS, "trl")]
    if not commands or every_launch(run, "accelerate"):
        return
    first = commands[0]
    place = first.get("launcher")
    for document in run.of("accelerate"):
        kind = document.get("distributed_type") or next(iter(document.found.values()), None)
        if kind is None or place is None or first.value("launcher") == "simpletuner":
            continue
        if document.format == "python":
            continue  # a call of Accelerator, whoever starts its script
        yield Finding(
            f"{first.value('launcher')} starts the run, and does not read {document.name}",
            (
                kind.key_label("nothing in this file applies"),
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


_KEYS: Final = (
    "mixed_precision",
    *(
        f"deepspeed_config.{name}"
        for name in (
            *("gradient_accumulation_steps", "gradient_clipping", "zero_stage"),
            *("offload_optimizer_device", "offload_param_device", "offload_param_nvme_path"),
            *("offload_optimizer_nvme_path", "zero3_save_16bit_model"),
        )
    ),
)
_FLAGS: Final = tuple(
    f"flags.{key.rpartition('.')[2]}" for key in _KEYS if key != "mixed_precision"
)
"""Only the keys of a file are checked, since `--mixed_precision` is written to the DeepSpeed file
(accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command`:
deepspeed_fields_from_accelerate_config)."""


@rule(
    "error",
    "init",
    consumers=("accelerate",),
    reads=("accelerate:deepspeed_config.deepspeed_config_file", *flags("deepspeed_config_file")),
)
def keys_beside_deepspeed_file(run: LintContext) -> Iterator[Finding]:
    """An accelerate file names a DeepSpeed file, and sets keys that only that file may set."""
    for document in run.of("accelerate", "launch"):
        if document.format == "python":
            continue  # only `accelerate launch` refuses them: DeepSpeedPlugin fills in its own
        is_flags = document.kind == "launch"
        keys = _FLAGS if is_flags else _KEYS
        holder = "flags" if is_flags else "deepspeed_config"
        file = document.get(f"{holder}.deepspeed_config_file")
        said = [place for key in keys if (place := document.get(key)) is not None]
        said = [each for each in said if each.value is not None]
        if file is None or not file.value or not said:
            continue
        labels: list[Label] = []
        for each in said:
            labels.append(each.key_label("only in the DeepSpeed file", primary=not labels))
        names = ", ".join(each.path.rpartition(".")[2] for each in said)
        yield Finding(
            f"accelerate does not take {names} beside deepspeed_config_file",
            (*labels, file.label("", primary=False)),
            (
                "accelerate does not merge them: the DeepSpeed file decides"
                if is_flags
                else "accelerate does not merge them: it refuses the file",
            ),
            "write them in the DeepSpeed file, and remove them here",
            None if is_flags else Fix(tuple(each.removed() for each in said), "unsafe"),
            severity="warning" if is_flags else None,
            consequence="silent" if is_flags else None,
        )


@rule("error", "parse", consumers=("accelerate",), reads=("launch:launcher",))
def launch_left_out(run: LintContext) -> Iterator[Finding]:
    """accelerate is given its launcher's flags without `launch`."""
    for document in launches(run, "accelerate"):
        at = document.get("launcher")
        if at is None or at.node.written != "accelerate":
            continue
        span = at.span
        rest = behind(document, span)[span.end_column - span.column :]
        if rest.lstrip().startswith("--"):
            yield Finding(
                "accelerate has no such flags: its launcher is `accelerate launch`",
                (at.label("no command"),),
                ("accelerate <command> [<args>]: error: unrecognized arguments",),
                "write accelerate launch",
                Fix((Edit(span, "accelerate launch"),), "unsafe"),
            )
