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
    for place in run.each("diffusers", "allow_tf32"):
        yield Finding(
            f"allow_tf32 does nothing on {device_name(device)}",
            (place.label("no TF32"),),
            ("matrices are multiplied in fp32 as before",),
            "remove it",
            severity="warning",
            consequence="silent",
        )


RULE = Rule(
    name="tf32-without-hardware",
    severity="error",
    consequence="parse",
    consumers=("transformers", "diffusers"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: ValueError, --tf32 requires Ampere or "
            "a newer GPU arch; utils/import_utils.py `is_torch_tf32_available`: major < 8, or "
            "torch.version.cuda is None"
        ),
        (
            "huggingface/diffusers 58eb52c examples: torch.backends.cuda.matmul.allow_tf32 = True; "
            "torch 2.13.0 docs: TensorFloat-32 on Ampere (and later) CUDA devices"
        ),
    ),
    check=_check,
)
