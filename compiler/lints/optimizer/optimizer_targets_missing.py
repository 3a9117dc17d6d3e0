"""A low-rank optimizer that is not told which modules are its own."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        place = document.get("optim")
        if place is None or not isinstance(place.value, str):
            continue
        if not place.value.startswith(("galore_", "apollo_")):
            continue
        holder = place.document
        targets = holder.get("optim_target_modules")
        if (targets is None or targets.value is None) and (
            "optim_target_modules" not in holder.unknown
        ):
            yield Finding(
                f"{place.path} {place.value} without optim_target_modules",
                (place.label("needs them"),),
                ("it works on the linear layers that are named, and on no others",),
                "write optim_target_modules: all-linear, or names as [attn, mlp]",
            )


RULE = Rule(
    name="optimizer-targets-missing",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`, "
            "trainer_optimizer.py `_setup_low_rank_optimizer`: ValueError, you need to define "
            "`optim_target_modules`"
        ),
    ),
    check=_check,
)
