"""LyCORIS in SimpleTuner."""

from collections.abc import Iterator
from math import isfinite
from typing import Final

from tunec.compiler.diagnostics.wording import nearest, nearly, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.diffusion import (
    configs,
    family,
    flags_read,
    is_lora,
    is_on,
    said,
    word,
)
from tunec.compiler.lints.rule import Finding, rule

_NEEDED: Final = ("algo", "multiplier", "linear_alpha")
_ALGORITHMS: Final = frozenset(
    {
        *("lora", "locon", "loha", "lokr", "dylora", "glora", "full", "diag-oft", "boft", "ia3"),
        "tlora",
    }
)
"""lycoris-lora 3.4.0 and 4.1.3 wrapper.py `network_module_dict`; 3.4.0 lacks the last two."""
_PRESET: Final = frozenset(
    {
        *("enable_conv", "target_module", "target_name", "module_algo_map", "name_algo_map"),
        *("lora_prefix", "use_fnmatch", "unet_target_module", "unet_target_name", "exclude_name"),
        *("text_encoder_target_module", "text_encoder_target_name"),
    }
)
"""lycoris-lora 3.4.0 and 4.1.3 config_sdk.py `VALID_PRESET_KEYS`."""
_READ: Final = frozenset(
    {
        *("algo", "multiplier", "linear_dim", "linear_alpha", "conv_dim", "conv_alpha", "preset"),
        *("dropout", "rank_dropout", "module_dropout", "disable_conv_cp", "use_conv_cp", "use_cp"),
        *("use_tucker", "use_scalar", "block_size", "train_norm", "constraint", "constrain"),
        *("rescaled", "dora_wd", "wd_on_output", "full_matrix", "bypass_mode", "factor"),
        *("unbalanced_factorization", "decompose_both", "train_llm_adapter", "warn_on_unmatched"),
        *("apply_preset", "tlora_min_rank", "tlora_alpha"),
    }
)
"""simpletuner's call: lycoris-lora 3.4.0 and 4.1.3 wrapper.py `create_lycoris`, which accepts any
other keyword too."""
_MEANT: Final = {
    **dict.fromkeys(("weight_decompose", "use_dora", "dora"), "dora_wd"),
    **dict.fromkeys(("rank", "dim", "lora_dim", "lora_rank", "network_dim"), "linear_dim"),
    **dict.fromkeys(("alpha", "lora_alpha", "network_alpha"), "linear_alpha"),
    "wd_on_out": "wd_on_output",
}
_LIKE: Final = 0.88
_WHOLE: Final = ("multiplier", "linear_alpha")
"""simpletuner 3.1.6 and 4.10.1 helpers/training/trainer.py: int(self.lycoris_config.get(...))."""
_FLUX_2: Final = frozenset(
    {
        *("Flux2SwiGLU", "Flux2FeedForward", "Flux2Attention", "Flux2ParallelSelfAttention"),
        *("Flux2SingleTransformerBlock", "Flux2TransformerBlock", "Flux2Modulation"),
        *("Flux2TimestepGuidanceEmbeddings", "Flux2Transformer2DModel"),
    }
)
"""simpletuner 4.10.1 helpers/models/flux2/transformer.py: the classes of its modules."""


_FIRST: Final = ("algo", "multiplier", "linear_dim")


@rule("error", "init", consumers=("simpletuner",), reads=("lycoris:*",))
def lycoris_config_unusable(run: LintContext) -> Iterator[Finding]:
    """A LyCORIS file that SimpleTuner refuses, or that adapts no module of the model."""
    families = {family(each) for each in configs(run)}
    for document in run.of("lycoris"):
        yield from _lacking(document)
        yield from _named(document)
        yield from _unread(document)
        yield from _cut(document)
        if families == {"flux2"}:
            yield from _elsewhere(document)


def _lacking(document: Document) -> Iterator[Finding]:
    first = next(filter(None, map(document.get, _FIRST)), None)
    is_full = document.value("full_matrix") is True
    needed = _NEEDED if is_full else (*_NEEDED, "linear_dim")
    for key in needed:
        if first is not None and document.get(key) is None:
            yield Finding(
                f"a LyCORIS file needs {key}",
                (first.label("of this method"),),
                ("lycoris_config JSON must contain this key",),
                f"write {key}",
                consequence="parse",
            )


def _named(document: Document) -> Iterator[Finding]:
    algo = document.get("algo")
    if algo is not None and str(algo.value).lower() not in _ALGORITHMS:
        yield Finding(
            f"LyCORIS has no algorithm {algo.value}",
            (algo.label("not found"),),
            (f"it has {quoted(sorted(_ALGORITHMS))}",),
            "write lokr, or lora with dora_wd: true" if "dora" in str(algo.value) else "write lokr",
        )
    preset = document.get("apply_preset")
    for key in (preset.node.fields or {}) if preset is not None else ():
        at = document.get(f"apply_preset.{key}")
        if at is not None and key not in _PRESET:
            near = nearest(key, _PRESET)[:1]
            yield Finding(
                f"a preset of LyCORIS has no key `{key}`",
                (at.key_label("refused"),),
                (f"valid keys: {quoted(sorted(_PRESET))}",),
                f"did you mean `{near[0]}`?" if near else "remove it",
            )


def _unread(document: Document) -> Iterator[Finding]:
    """Keys are passed to a function that accepts all keywords, and reads only known ones."""
    for key, at in document.found.items():
        if "." in key or key in _READ or document.get("algo") is None:
            continue
        near = _MEANT.get(key) or nearly(key, _READ, _LIKE)
        if near is not None:
            yield Finding(
                f"a LyCORIS file has no key `{key}`",
                (at.key_label("not read"),),
                ("any keyword is accepted, and unknown ones are ignored",),
                f"did you mean `{near}`?",
                severity="warning",
                consequence="silent",
            )


def _cut(document: Document) -> Iterator[Finding]:
    """Both are converted to whole numbers, so that 0.5 becomes 0."""
    for key in _WHOLE:
        at = document.get(key)
        if at is None or not isinstance(at.value, float) or not isfinite(at.value):
            continue
        if at.value != int(at.value):
            yield Finding(
                f"{key} {at.value} is cut to {int(at.value)}",
                (at.label("a whole number is read"),),
                ("the adapter's output is multiplied by it",)
                if key == "multiplier"
                else ("an alpha of 0 is taken for the rank",)
                if int(at.value) == 0
                else (),
                "write a whole number",
                severity="warning",
                consequence="silent",
            )


def _elsewhere(document: Document) -> Iterator[Finding]:
    at = document.get("apply_preset.target_module")
    names = at.value if at is not None else None
    if at is None or not isinstance(names, list) or not names or {*map(str, names)} & _FLUX_2:
        return
    yield Finding(
        f"no module of FLUX.2 is a {names[0]}",
        (at.label("adapts nothing"),),
        ("create LyCORIS: 0 modules; the optimizer gets an empty parameter list",),
        "write Flux2Attention, Flux2FeedForward, Flux2ParallelSelfAttention",
    )


@rule("error", "init", consumers=("simpletuner",), reads=flags_read("lora_type"))
def refused_beside_lycoris(run: LintContext) -> Iterator[Finding]:
    """Keys beside LyCORIS that are refused or ignored."""
    for document in configs(run):
        at = said(document, "lora_type")
        if at is None or word(document, "lora_type") != "lycoris" or not is_lora(document):
            continue
        text = said(document, "train_text_encoder")
        if text is not None and is_on(text):
            yield Finding(
                "SimpleTuner refuses train_text_encoder beside lora_type lycoris",
                (text.label("refused"), at.label("", primary=False)),
                (),
                "remove it",
            )
        for key in ("lora_rank", "lora_alpha", "lora_dropout", "use_dora"):
            rank = said(document, key)
            if rank is not None and rank.value not in (False, 0):
                yield Finding(
                    f"{key} does nothing with lora_type lycoris",
                    (rank.label("not used"), at.label("", primary=False)),
                    ("lycoris_config has its own linear_dim, linear_alpha and dropout",),
                    "remove it, and set it in the file",
                    severity="warning",
                    consequence="silent",
                )
