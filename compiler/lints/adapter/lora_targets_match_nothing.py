"""LoRA's targets are the names of another architecture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.families import family_of
from tunec.compiler.lints.adapter.lora import ALL_LINEAR, Lora, adapters, is_patched, is_plain, last
from tunec.compiler.lints.adapter.tree import NoRegex, adapted, usual
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        at = lora.place("target_modules")
        if at is not None and (shorthand := _shorthand(run, lora, at)) is not None:
            yield shorthand
        elif (
            at is None
            or lora.targets is None
            or lora.targets == ALL_LINEAR
            or is_patched(run, lora)
        ):
            continue
        else:
            tree = _in_tree(run, run.model, lora, at) if run.model else _in_family(run, lora, at)
            yield from tree


def _shorthand(run: Run, lora: Lora, at: Place) -> Finding | None:
    """`all-linear` is a word of its own from PEFT 0.8 on, and a name where it stands in a list."""
    if isinstance(lora.targets, tuple) and ALL_LINEAR in lora.targets:
        return Finding(
            f"{ALL_LINEAR} in a list is the name of a module, and none is called so",
            (at.label("matches nothing"),),
            ("PEFT takes it for all linear layers only where it stands alone",),
            f"write {ALL_LINEAR} without the list",
            Fix((at.replaced(ALL_LINEAR),), "unsafe") if lora.document.kind == "peft" else None,
            severity=None if len(lora.targets) == 1 else "warning",
        )
    if lora.targets == ALL_LINEAR and at.value == ALL_LINEAR and run.runs("peft<0.8"):
        return Finding(
            f"{ALL_LINEAR} is a regular expression to PEFT {run.release('peft').version}",
            (at.label("matches nothing"),),
            ("the word came with PEFT 0.8.0",),
            "write the names of the layers, or use PEFT 0.8 and later",
        )
    return None


def _in_tree(run: Run, model: "ResolvedModel", lora: Lora, at: Place) -> Iterator[Finding]:
    architecture, targets = model.architecture, lora.targets or ()
    try:
        if adapted(architecture, targets) or lora.value("target_parameters"):
            return
    except NoRegex as fault:
        yield Finding(
            f"the target {targets} is no regular expression: {fault}",
            (at.label("not compiled"),),
            ("a string is taken for a regular expression over whole module names",),
            "mend the expression, or write a list of names",
        )
        return
    if isinstance(targets, str) and is_plain(targets):
        return  # a bare name as a string is a rule of its own
    if not isinstance(targets, str) and not all(map(is_plain, targets)):
        return
    names = usual(architecture)
    yield Finding(
        f"{lora.method}'s targets match no module of {model.path}",
        (at.label("matches nothing"),),
        (f"its layers are called {', '.join(names)}",) if names else (),
        f"write {', '.join(names[:4])}" if names else None,
        # transformers 4.52 renamed modules of models that see: a regex may fit the other names
        certain=not (isinstance(targets, str) and architecture.kind == "vision-language")
        or _has_new_names(run),
    )


def _has_new_names(run: Run) -> bool:
    """Whether a release is named that has the catalogue's names; Axolotl 0.10 pins 4.52."""
    return run.runs("transformers>=4.52") is True or run.runs("axolotl>=0.10") is True


def _in_family(run: Run, lora: Lora, at: Place) -> Iterator[Finding]:
    path, targets = run.model_name, lora.targets
    known = family_of(path) if path is not None else None
    if known is None or isinstance(targets, str) or targets is None:
        return
    family, layers = known
    if not all(map(is_plain, targets)) or any(last(each) in layers for each in targets):
        return
    yield Finding(
        f"{lora.method}'s targets are no layers of {family}: {', '.join(targets)}",
        (at.label("matches nothing"),),
        (f"by its name {path} is {family}, with the layers {', '.join(sorted(layers))}",),
        "write the names of this architecture, or all-linear",
    )


RULE = Rule(
    name="lora-targets-match-nothing",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `BaseTuner.inject_adapter`: Target "
            "modules ... not found in the base model; `check_target_module_exists`: a name, a "
            "suffix after a dot, or a regex over the whole name"
        ),
        "peft 0.8.2 utils/constants.py INCLUDE_LINEAR_LAYERS_SHORTHAND; absent in 0.7.1",
        "OptimalScale/LMFlow#125, huggingface/peft#758, #40; axolotl-ai-cloud/axolotl#2792",
    ),
    check=_check,
)
