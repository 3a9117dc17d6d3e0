"""Keys of an upload that is not asked for."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("hub_model_id", "hub_strategy", "hub_always_push")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        if document.is_view or "push_to_hub" in document.unknown:
            continue  # Axolotl pushes wherever hub_model_id is written
        push = document.get("push_to_hub")
        key = next((p for name in _KEYS if (p := document.get(name)) and p.value), None)
        if key is None or (push is not None and push.value is not False):
            continue
        yield Finding(
            f"{key.path} without push_to_hub: nothing is uploaded while it trains",
            (
                key.label("not used"),
                *([push.label("", primary=False)] if push is not None else []),
            ),
            (),
            "write push_to_hub: true",
            Fix((push.replaced(True),), "unsafe") if push is not None else None,
        )


RULE = Rule(
    name="hub-keys-without-push",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `__init__`: init_hf_repo if "
            "args.push_to_hub; `_save_checkpoint`: _push_from_checkpoint if args.push_to_hub"
        ),
    ),
    check=_check,
)
