"""torch_compile is false, and a detail of it turns it on."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DETAILS: Final = ("torch_compile_backend", "torch_compile_mode")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        off = document.get("torch_compile")
        if off is None or off.value is not False or document.is_view:
            continue
        for key in _DETAILS:
            place = document.get(key)
            if place is not None and place.value is not None:
                yield Finding(
                    f"torch_compile is false, and {key} turns it on",
                    (off.label("not so"), place.label("turns it on", primary=False)),
                    ("a backend or a mode is taken as the wish to compile",),
                    f"remove {key}",
                    Fix((place.removed(),), "unsafe"),
                )


RULE = Rule(
    name="compile-turned-on",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: if torch_compile_mode "
            "or torch_compile_backend is not None and not torch_compile: torch_compile = True"
        ),
        (
            "transformers 5.23.0 run on CPU: TrainingArguments(torch_compile=False, "
            "torch_compile_backend='inductor').torch_compile is True"
        ),
    ),
    check=_check,
)
