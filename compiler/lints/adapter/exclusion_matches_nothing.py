"""A name in `exclude_modules` that takes no target of LoRA out."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import adapters, is_plain
from tunec.compiler.lints.adapter.tree import parts, unmatched
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    architecture = run.model.architecture
    for lora in adapters(run):
        at = lora.place("exclude_modules")
        if at is None or not isinstance(at.value, list):
            continue
        named = [each for each in lora.excluded if is_plain(each)]
        lost = unmatched(architecture, named)
        if not lost:
            continue
        blocks = [each for each in lost if each.rpartition(".")[2] in parts(architecture)]
        why = (
            f"{quoted(blocks, 'and')} is a block: layers inside it have names of their own"
            if blocks
            else "no module has a name that ends so"
        )
        yield Finding(
            f"{quoted(lost, 'and')} in exclude_modules takes nothing out",
            (at.label("matches no layer"),),
            (why, "a list is compared with the end of a name, a text is an expression"),
            f'write "{".*" + blocks[0] + ".*"}" without the list' if blocks else "remove it",
        )


RULE = Rule(
    name="exclusion-matches-nothing",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.14.0 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`: equality "
            "or endswith for the items of a list, re.fullmatch for a text; 0.21.2 warns: no "
            "modules were excluded"
        ),
    ),
    check=_check,
)
