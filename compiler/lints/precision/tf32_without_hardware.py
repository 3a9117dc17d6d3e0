"""TF32 on devices that do not have it."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.precision.asked import device_name, turned_on
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    device = run.environment.weakest
    if device is None or (device.vendor == "nvidia" and device.supports("tf32")):
        return
    for place in turned_on(run, (("trainer", "tf32"), ("hf", "tf32")), "tf32"):
        yield Finding(
            f"{device_name(device)} has no TF32"
            if device.vendor == "nvidia"
            else f"TF32 is asked for on {device_name(device)}, where torch has no CUDA",
            (place.label("refused"),),
            (),
            "remove it",
            Fix((place.removed(),), "safe") if place.document.format != "shell" else None,
        )


RULE = Rule(
    name="tf32-without-hardware",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: ValueError, --tf32 requires Ampere or "
            "a newer GPU arch; utils/import_utils.py `is_torch_tf32_available`: major < 8, or "
            "torch.version.cuda is None"
        ),
    ),
    check=_check,
)
