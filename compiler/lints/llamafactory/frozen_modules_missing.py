"""Freeze-tuning or LoRA is asked for parts of the model that are not there, or are frozen."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture

_INDEX: Final = re.compile(r"\.\{\}\.")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        if document.value("finetuning_type") == "freeze" and run.model is not None:
            yield from _named(document, run.model.architecture)
        yield from _frozen(run, document)


def _named(document: Document, architecture: "Architecture") -> Iterator[Finding]:
    """The names that stand directly below a layer: `self_attn`, and no `q_proj`."""
    yield from _beside_layers(document, architecture)
    at = where(document, "freeze_trainable_modules")
    blocks = _blocks(architecture)
    if at is None or not blocks:
        return
    lost = [each for each in _names(at) if each != "all" and each not in blocks]
    if lost:
        near = nearest(lost[0], blocks)[:1]
        yield Finding(
            f"no layer has a module {quoted(lost, 'or')}",
            (at.label("not found"),),
            (f"a layer is made of {', '.join(sorted(blocks))}",),
            f"write {near[0]}" if near else "write all, or one of these",
        )


def _beside_layers(document: Document, architecture: "Architecture") -> Iterator[Finding]:
    """Modules outside of the layers: the embeddings, the last norm, the head."""
    at = where(document, "freeze_extra_modules")
    outside = {each.path for each in architecture.modules if not _INDEX.search(each.path)}
    names = {path.rpartition(".")[2] for path in {*outside, architecture.head or ""} if path}
    lost = [each for each in _names(at) if each not in names] if at is not None else []
    if at is not None and names and lost:
        yield Finding(
            f"no module outside of the layers is called {quoted(lost, 'or')}",
            (at.label("not found"),),
            (f"there are {', '.join(sorted(names))}",),
            "write one of these",
        )


def _blocks(architecture: "Architecture") -> frozenset[str]:
    paths = (each.path for each in architecture.modules if _INDEX.search(each.path))
    return frozenset(_INDEX.split(path, maxsplit=1)[1].partition(".")[0] for path in paths)


def _names(at: Place) -> list[str]:
    value = at.value if isinstance(at.value, list) else str(at.value).split(",")
    return [str(each).strip() for each in value if str(each).strip()]


def _frozen(run: Run, document: Document) -> Iterator[Finding]:
    """All linear layers of a model with eyes whose language model is frozen.

    Those of its tower are frozen by default, and the projector never counts among them.
    """
    at = where(document, "freeze_language_model=true & finetuning_type=lora")
    eyes = document.get("freeze_vision_tower")
    targets = document.get("lora_target")
    is_all = targets is None or targets.value == "all"
    sees = run.model is not None and run.model.architecture.kind == "vision-language"
    if at is None or not is_all or not sees or (eyes is not None and eyes.value is False):
        return
    yield Finding(
        "the language model and the vision tower are frozen: LoRA has no layer left",
        (
            at.label("frozen"),
            *([eyes.label("", primary=False)] if eyes else []),
            *([targets.label("", primary=False)] if targets else []),
        ),
        (
            "freeze_vision_tower is true where it is left out",
            "lora_target all leaves the projector out",
        ),
        "write freeze_vision_tower: false, or train the projector by finetuning_type: full",
        consequence="init",
    )


RULE = Rule(
    name="frozen-modules-missing",
    severity="error",
    consequence="load",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_freeze_tuning`: Module ... is "
            "not found, please choose from (the names after the first index of a parameter)"
        ),
        (
            "llamafactory 0.9.2 to 0.9.5 model/model_utils/misc.py `find_all_linear_modules`, "
            "visual.py `patch_target_modules`, `get_forbidden_modules`; hiyouga/LlamaFactory#8804"
        ),
    ),
    check=_check,
)
