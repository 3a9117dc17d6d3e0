"""LoRA's targets match layers of the vision tower too."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import Lora, is_patched, loras
from tunec.compiler.lints.adapter.tree import NoRegex, adapted
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None or run.model.architecture.kind != "vision-language":
        return
    tree = run.model.architecture
    for lora in loras(run):
        at, targets = _place(lora), lora.targets
        if at is None or targets is None or is_patched(run, lora):
            continue
        try:
            found = adapted(tree, targets, lora.excluded)
        except NoRegex:
            continue
        seen = sum(each.copies for each in found if each.part == "vision")
        every = sum(each.copies for each in found)
        if seen and seen < every:
            yield Finding(
                f"{seen} of the {every} layers that LoRA adapts are in the vision tower",
                (at.label("matches both"),),
                (
                    "activations of the tower are kept for the backward pass, image by image",
                    "names of projections are the same in both parts",
                ),
                "exclude the tower (exclude_modules), or write a regular expression",
            )


def _place(lora: Lora) -> Place | None:
    return lora.place("target_modules") or lora.document.get("lora_target_linear")


RULE = Rule(
    name="lora-reaches-vision-tower",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`, "
            "`_maybe_include_all_linear_layers`: over the whole module tree"
        ),
        (
            "zai-org/GLM-4#325: query_key_value matches the vision tower too; llamafactory 0.9.5 "
            "model/model_utils/visual.py `patch_target_modules` keeps it out"
        ),
    ),
    check=_check,
)
