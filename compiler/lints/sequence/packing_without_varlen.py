"""Samples are packed, and attention does not keep them apart."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_APART: Final = ("flash", "flex", "xformers", "sage")
_NAMED_BY: Final = ("attn_implementation", "model_init_kwargs.attn_implementation")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("sft"):
        yield from _of_trl(run, document)
    for document in run.of("axolotl"):
        yield from _of_axolotl(run, document)


def _of_trl(run: Run, document: Document) -> Iterator[Finding]:
    at = next((p for k in ("packing", "padding_free") if (p := document.get(k)) and _on(p)), None)
    if at is None or document.is_view or run.runs("trl>=1.16"):
        return
    attention = _attention(run)
    if attention is None or _keeps_apart(attention.value):
        return
    yield Finding(
        f"{at.path} with {attention.value} attention: samples of one sequence see each other",
        (at.label("several samples in one"), attention.label("sees them all", primary=False)),
        (
            "only flash attention (2, 3) and flex attention read where a sample begins",
            (
                "transformers since 4.53 builds the mask from positions where no padding mask is "
                "given; trl before 1.16 does not rely on it and warns of cross-contamination"
            ),
            "measured: a final loss higher by 0.03 to 0.15 on Pythia 160m and 410m",
        ),
        "write attn_implementation: flash_attention_2, or packing: false",
        severity=None if run.runs("transformers<4.53") else "warning",
    )


def _of_axolotl(run: Run, document: Document) -> Iterator[Finding]:
    at = document.get("sample_packing")
    if at is None or not _on(at):
        return
    keys = (
        "flash_attention",
        "sdp_attention",
        "flex_attention",
        "xformers_attention",
        "s2_attention",
    )
    eager, word = document.get("eager_attention"), document.get("attn_implementation")
    if any(document.value(key) for key in keys) or (word is not None and word.value):
        return
    if eager is not None and eager.value and run.runs("axolotl>=0.13") is not False:
        return
    yield Finding(
        "sample_packing without an attention that is named: samples may see each other",
        (at.label("several samples in one"), *([eager.label("", primary=False)] if eager else [])),
        ("Axolotl warns: does not handle cross sample decontamination",),
        "write flash_attention: true, or attn_implementation: flash_attention_2 from 0.13 on",
        severity="warning",
    )


def _attention(run: Run) -> Place | None:
    for kind in ("model", "sft"):
        if (found := run.said(kind, *_NAMED_BY)) is not None:
            return found
    return None


def _keeps_apart(value: object) -> bool:
    return not isinstance(value, str) or any(part in value for part in _APART)


def _on(at: Place) -> bool:
    return at.value is True or at.value == "true"


RULE = Rule(
    name="packing-without-varlen",
    severity="error",
    consequence="silent",
    consumers=("trl", "axolotl"),
    sources=(
        (
            "trl 0.27.2 to 1.9.2 trainer/sft_trainer.py: Using other implementations may lead to "
            "cross-contamination between samples; 1.16.0 no longer asks"
        ),
        (
            "axolotl 0.8.1 utils/schemas/config.py `check_sample_packing_wo_flash`, 0.19.0 "
            "validation.py `check_sample_packing_without_attention`"
        ),
        "transformers 4.57.6 and 5.23.0 masking_utils.py `find_packed_sequence_indices`",
        "trl 0.27.2 trainer/sft_trainer.py: model_init_kwargs are those of from_pretrained",
        "huggingface/trl#3910, #1230, #3067; axolotl-ai-cloud/axolotl#449",
    ),
    check=_check,
)
