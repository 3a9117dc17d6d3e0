"""A LyCORIS file that SimpleTuner does not take, or that adapts no module of the model."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs, family
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NEEDED: Final = ("multiplier", "linear_alpha")
_FLUX_2: Final = frozenset(
    {
        *("Flux2SwiGLU", "Flux2FeedForward", "Flux2Attention", "Flux2ParallelSelfAttention"),
        *("Flux2SingleTransformerBlock", "Flux2TransformerBlock", "Flux2Modulation"),
        *("Flux2TimestepGuidanceEmbeddings", "Flux2Transformer2DModel"),
    }
)
"""simpletuner 4.10.1 helpers/models/flux2/transformer.py: the classes of its modules."""


def _check(run: Run) -> Iterator[Finding]:
    families = {family(each) for each in configs(run)}
    for document in run.of("lycoris"):
        yield from _lacking(document)
        if families == {"flux2"}:
            yield from _elsewhere(document)


def _lacking(document: Document) -> Iterator[Finding]:
    first = document.get("algo")
    is_full = document.value("full_matrix") is True
    needed = _NEEDED if is_full else (*_NEEDED, "linear_dim")
    for key in needed:
        if first is not None and document.get(key) is None:
            yield Finding(
                f"a LyCORIS file without {key}",
                (first.label("of this method"),),
                ("lycoris_config JSON must contain this key",),
                f"write {key}",
                consequence="parse",
            )


def _elsewhere(document: Document) -> Iterator[Finding]:
    at = document.get("apply_preset.target_module")
    names = at.value if at is not None else None
    if at is None or not isinstance(names, list) or not names or set(names) & _FLUX_2:
        return
    yield Finding(
        f"no module of FLUX.2 is a {names[0]}",
        (at.label("adapts nothing"),),
        ("create LyCORIS: 0 modules; the optimizer gets an empty parameter list",),
        "write Flux2Attention, Flux2FeedForward, Flux2ParallelSelfAttention",
    )


RULE = Rule(
    name="lycoris-config-unusable",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: lycoris_config JSON "
            "must contain multiplier key, linear_dim key if full_matrix is not set, linear_alpha"
        ),
        "bghira/SimpleTuner#2435, #2476",
    ),
    check=_check,
)
