"""Some of LoRA's targets match no module."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.adapter.lora import adapters, is_patched, is_plain
from tunec.compiler.lints.adapter.tree import leaves, parts, unmatched
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    tree = run.model.architecture
    for lora in adapters(run):
        at, targets = lora.place("target_modules"), lora.targets
        if at is None or not isinstance(targets, tuple) or not all(map(is_plain, targets)):
            continue
        if is_patched(run, lora):
            continue
        lost = [each for each in unmatched(tree, targets) if each not in parts(tree)]
        if not lost or len(lost) == len(targets):
            continue
        known = leaves(tree, ("linear",))
        near = dict.fromkeys(name for each in lost for name in nearest(each, known)[:1])
        yield Finding(
            f"{quoted(lost, 'and')} of {lora.method}'s targets match no module of {run.model.path}",
            (at.label("partly unused"),),
            ("PEFT says nothing as long as one of the targets matches",),
            f"did you mean {quoted(near)}?" if near else "remove them",
        )


RULE = Rule(
    name="lora-target-unused",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `BaseTuner.inject_adapter`: only refuses "
            "when no module at all matched"
        ),
    ),
    check=_check,
)
