"""LoRA is to be put on a block or a norm, which PEFT cannot adapt."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import adapters, is_patched
from tunec.compiler.lints.adapter.tree import leaves, parts, unmatched
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    tree = run.model.architecture
    layers = leaves(tree, ("linear", "embedding", "conv", "parameter"))
    for lora in adapters(run):
        at, targets = lora.place("target_modules"), lora.targets
        if at is None or not isinstance(targets, tuple) or is_patched(run, lora):
            continue
        lost = unmatched(tree, targets)
        blocks = [each for each in lost if each in parts(tree) and each not in layers]
        if blocks:
            yield Finding(
                f"{lora.method} cannot be put on {quoted(blocks, 'and')} of {run.model.path}",
                (at.label("a block or a norm, and no linear layer"),),
                ("PEFT adapts linear layers, embeddings and convolutions",),
                "name the linear layers inside",
            )


RULE = Rule(
    name="lora-target-not-a-layer",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/model.py `LoraModel._create_new_module`: Target "
            "module ... is not supported"
        ),
    ),
    check=_check,
)
