"""The pattern of the layers is no part of the model's names."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import adapters
from tunec.compiler.lints.adapter.tree import parts
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    names = parts(run.model.architecture)
    for lora in adapters(run):
        at = lora.place("layers_pattern")
        if at is None or lora.place("layers_to_transform") is None:
            continue
        given = at.value if isinstance(at.value, list) else [at.value]
        known = [each for each in given if isinstance(each, str)]
        if known and not any(each in names for each in known):
            stacks = sorted({"layers", "h", "blocks", "block"} & names)
            yield Finding(
                f"layers_pattern {known[0]} is no part of the names of {run.model.path}",
                (at.label("matches nothing"),),
                ("a module counts only if its name holds the pattern and an index",),
                f"write {stacks[0]}" if stacks else "remove it",
            )


RULE = Rule(
    name="layers-pattern-unknown",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`: "
            "layer_index = re.match(rf'.*\\.{pattern}\\.(\\d+)\\.', key); run: Target modules ... "
            "not found in the base model"
        ),
    ),
    check=_check,
)
