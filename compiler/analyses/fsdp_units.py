"""Models whose units for FSDP are special: attention inside a layer, embeddings of several modules.

transformers 5.23, the instances' `_no_split_modules` and tied parameters. accelerate
utils/fsdp_utils.py `fsdp2_prepare_model`: from 1.14 on the input embedding is a unit, with the
output projection where the two are tied (1.15). A parameter of two units is refused by torch 2.13
(`FSDPState._validate_no_duplicate_params`), and trained as two by older releases.
"""

from collections.abc import Sequence
from typing import Final

from packaging.version import Version

from tunec.schemas.models.architecture import Architecture

CUTS_EMBEDDING: Final = Version("1.14")
"""The first release of accelerate in which FSDP 2 has a unit for the embedding."""
_WITH_HEAD: Final = Version("1.15")
"""The first release that puts a tied output projection into that unit (accelerate pull request
4171)."""
_SHARED_ALWAYS: Final = frozenset({"longt5", "mt5", "switch_transformers", "t5", "umt5"})
"""T5 and related families: encoder and decoder both hold `shared`, even if the head is not tied to
it."""
INSIDE_UNIT: Final = frozenset(
    {
        *("bert", "camembert", "data2vec-text", "gte", "jina_embeddings_v3", "modernbert"),
        *("modernvbert", "nomic_bert", "roberta", "roberta-prelayernorm"),
        *("xlm-roberta", "xlm-roberta-xl"),
    }
)
"""Families that declare a module around their token embedding as a unit (`BertEmbeddings`)."""
NESTED_ATTENTION: Final = frozenset({"mbart"})
"""Families that name their attention as a unit beside the layer that holds it (`MBartAttention`).
accelerate 1.15 recomputes each unit by itself (`accelerator.py`, `apply_activation_checkpointing`),
one inside of the other, and torch's wrapper keeps what each reads."""
WITH_BUFFERS: Final = frozenset(
    {
        *("apertus", "bart", "deepseek_v3", "deepseek_v32", "dots1", "esm", "exaone_moe", "gemma4"),
        *("gemma4_unified", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "lfm2_moe"),
        *("marian", "mbart", "mimo_v2_flash", "minimax_m2", "nemotron_h", "pegasus", "solar_open"),
    }
)
"""Families whose state holds buffers beside parameters, such as `e_score_correction_bias`.

accelerate 1.6 to 1.15 `fsdp2_load_full_state_dict` sends what rank 0 has read as shards of a mesh,
which a buffer has not: the run ends at its start."""
TIED_BIAS: Final = frozenset(
    {
        *("albert", "bert", "big_bird", "camembert", "data2vec-text", "deberta", "deberta-v2"),
        *("ernie", "fnet", "ibert", "jina_embeddings_v3", "layoutlm", "longformer", "luke"),
        *("megatron-bert", "mobilebert", "mpnet", "mra", "nomic_bert", "nystromformer", "roberta"),
        *("roberta-prelayernorm", "roc_bert", "roformer", "squeezebert", "tapas", "xlm-roberta"),
        *("xlm-roberta-xl", "xmod", "yoso"),
    }
)
"""Families whose masked-language head holds its bias, which the head's projection shares."""


def has_buffers(model: Architecture) -> bool:
    """Whether the state of a model holds buffers beside its parameters."""
    return model.family.removesuffix("_text") in WITH_BUFFERS


def embedding_in_two_units(
    model: Architecture,
    version: int,
    accelerate: Version | None,
    units: Sequence[str] | None = None,
) -> str | None:
    """Why FSDP fails at a model's embedding; None if it does not.

    `accelerate` is the release, None the newest known; `units` the classes that are wrapped, None
    those that the model itself names, which FSDP 2 takes from the same release on.
    """
    cuts = version == 2 and (accelerate is None or accelerate >= CUTS_EMBEDDING)
    if units is None:
        inside = model.family in INSIDE_UNIT and (version == 1 or cuts)
    else:
        inside = any("Embedding" in name for name in units)
    if inside and model.tied:
        return "the model's embedding is in a unit, and its output projection is not"
    if not cuts:
        return None
    if inside:
        return "accelerate shards the embedding, which is already inside a unit of the model's own"
    if _is_shared(model):
        return "encoder and decoder share an embedding, which accelerate puts into one unit of two"
    if model.tied and model.family in TIED_BIAS:
        return "the output projection shares its bias with a module outside of its unit"
    if model.tied and accelerate is not None and accelerate < _WITH_HEAD:
        return f"accelerate {accelerate} puts a tied output projection into another unit"
    return None


def _is_shared(model: Architecture) -> bool:
    """Whether each half of an encoder-decoder holds the embedding as its own module."""
    reads_text = model.kind == "encoder-decoder" and not model.source
    return model.family in _SHARED_ALWAYS or (reads_text and model.tied)
