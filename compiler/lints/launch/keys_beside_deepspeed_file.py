"""An accelerate file names a DeepSpeed file and says what only that file may."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

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
"""Only the keys of a file are asked for, and `--mixed_precision` is put into the DeepSpeed file
(accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command`:
deepspeed_fields_from_accelerate_config)."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate", "launch"):
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
            f"{names} beside deepspeed_config_file",
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


RULE = Rule(
    name="keys-beside-deepspeed-file",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`DeepSpeedPlugin._deepspeed_config_checks`, "
            "commands/launch.py: ACCELERATE_CONFIG_DS_FIELDS"
        ),
        "huggingface/accelerate#941, yuvalkirstain/PickScore#2",
    ),
    check=_check,
)
