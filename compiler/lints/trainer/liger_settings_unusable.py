"""Settings of Liger's kernels that are refused, or that nobody reads."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_CONFIG: Final = "liger_kernel_config"
_KERNELS: Final = (
    *("rope", "cross_entropy", "fused_linear_cross_entropy", "rms_norm", "swiglu", "geglu"),
    "layer_norm",
)
_WHOLE: Final = f"{_CONFIG}.cross_entropy"
_FUSED: Final = f"{_CONFIG}.fused_linear_cross_entropy"
_ALONE: Final = "granite"
"""Whose fused loss is off where nothing says so."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        config = document.get(_CONFIG)
        if config is None or not config.node.fields or document.is_view:
            continue
        switch = document.get("use_liger_kernel")
        if switch is None or switch.value is False:
            if "use_liger_kernel" not in document.unknown:
                yield _unread(config, switch)
            continue
        yield from _both(run, document)
        for name in config.node.fields:
            place = document.get(f"{_CONFIG}.{name}")
            if place is not None and name not in _KERNELS:
                yield _unknown(place, str(name))


def _unread(config: Place, switch: Place | None) -> Finding:
    return Finding(
        f"{config.path} does nothing: use_liger_kernel is off",
        (
            config.key_label("not read"),
            *([switch.label("", primary=False)] if switch is not None else []),
        ),
        (),
        "write use_liger_kernel: true, or remove it",
        severity="warning",
    )


def _both(run: Run, document: Document) -> Iterator[Finding]:
    whole, fused = document.get(_WHOLE), document.get(_FUSED)
    if whole is None or whole.value is not True or (fused is not None and fused.value is not True):
        return
    model = run.model.card if run.model is not None else None
    if fused is None and model is not None and _ALONE in str(model).lower():
        return
    yield Finding(
        "both cross entropies of Liger are on",
        (
            whole.label("one of the two"),
            *([fused.label("the other", primary=False)] if fused is not None else []),
        ),
        (
            "AssertionError: cross_entropy and fused_linear_cross_entropy cannot both be True",
            *(() if fused is not None else ("fused_linear_cross_entropy is true by default",)),
        ),
        "write fused_linear_cross_entropy: false, or remove cross_entropy",
        consequence="init",
    )


def _unknown(place: Place, name: str) -> Finding:
    near = nearest(name.removeprefix("liger_"), _KERNELS)
    return Finding(
        f"Liger has no kernel named {name}",
        (place.key_label("passed over"),),
        ("a word that no kernel of this model has is left out without a message",),
        f"did you mean {quoted(near[:1])}?" if near else f"there are {quoted(list(_KERNELS))}",
        Fix((place.renamed(near[0]),), "unsafe") if near else None,
        severity="warning",
    )


RULE = Rule(
    name="liger-settings-unusable",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 trainer.py: if self.args.use_liger_kernel, integrations/liger.py "
            "`apply_liger_kernel`"
        ),
        (
            "liger-kernel 0.6.2 transformers/monkey_patch.py `_apply_liger_kernel_to_instance`: "
            "applicable_kwargs; the same assertion in all 22 of `apply_liger_kernel_to_*`"
        ),
    ),
    check=_check,
)
