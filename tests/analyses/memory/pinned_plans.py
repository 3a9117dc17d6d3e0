"""Plans whose terms are pinned by closed sums (`pinned_terms.yaml`), and what the sums are made of.

Symbols are numbers of elements: `P` in the whole model, `E` in the embedding, `G` in one layer, `R`
in all adapters, `h`, `f`, `q`, `k` in a token's hidden state, inner activation, queries and keys,
`I` in what all adapters read of a token, `B` in a reduce bucket; `a` heads, `L` layers, `V` rows of
the vocabulary, `T` tokens of a micro batch, `N` ranks, `M` adapters of rank `r`. `A` is what a
trained layer keeps of a token in bytes, `F` what one keeps that only gradients pass; traces hold
both (`test_traced_decoders.py`).
"""

from collections.abc import Callable
from typing import Any, Final

from workload_builders import (
    ATTENTION,
    BF16_LORA,
    FP32,
    FSDP_1,
    LLAMA_3_8B,
    LLAMA_32_1B,
    MIXED,
    layout,
    matching,
    model,
    nf4,
)
from workload_builders import full as _full
from workload_builders import lora as _lora

from tunec.compiler.analyses.memory.workload import (
    USUAL_FSDP,
    Generation,
    Layout,
    Preference,
    Workload,
)
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.catalogue import card

Symbols = dict[str, int]

_8B, _1B = model(LLAMA_3_8B), model(LLAMA_32_1B)
_MIXTRAL = model(
    {"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 3584}
    | {"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2}
    | {"vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
)
_T5 = model({"model_type": "t5"})
_SDXL, _FLUX, _WAN, _QWEN_VL = (
    model(dict(card(n).config)) for n in ("sdxl", "flux.1-dev", "wan2.1-t2v-1.3b", "qwen2.5-vl-7b")
)
_AUTOCAST = FP32 | {"autocast": True}
_ADAPTING = BF16_LORA | {"autocast": True}
_ZERO: Final = {"engine": "deepspeed", "world": 8, **MIXED}
_FSDP_2 = replace(USUAL_FSDP, state_dict="full")
_ANSWERS = Generation(768, 8, by_sample=True, steps=256)
_PICTURE = {
    "images": 1,
    "image_width": 448,
    "image_height": 448,
    "image_tokens": 256,
    "vision_tokens": 1024,
}
_TEXTS = tuple(model(dict(each.config)) for each in card("sdxl").components)


_TOKENS: Final = 1009
"""A prime, so that no sum over tokens is one over widths by chance."""


def full(architecture: Architecture, **changes: Any) -> Workload:
    return _full(architecture, **{"sequence": _TOKENS, **changes})


def lora(architecture: Architecture, **changes: Any) -> Workload:
    return _lora(architecture, **{"sequence": _TOKENS, **changes})


_TEXT_ALONE = tuple(m for m in matching(_QWEN_VL, ATTENTION) if m.part == "text")


def _adapter(workload: Workload, **changes: Any) -> Workload:
    return replace(workload, adapter=replace(workload.adapter, **changes))


def _of_attention(architecture: Architecture, side: int) -> Workload:
    """16-bit adapters on all attention of a denoiser."""
    names = (".to_q", ".to_k", ".to_v", ".to_out.0", ".to_out.{}")
    adapted = tuple(m for m in architecture.modules if m.path.endswith(names))
    picture = {"images": 1, "image_width": side, "image_height": side}
    return lora(architecture, sequence=0, adapted=adapted, **picture)


PLANS: Final[dict[str, Callable[[], tuple[Workload, Layout]]]] = {
    "everything on one device": lambda: (full(_8B), layout()),
    "recomputed layers, two samples": lambda: (full(_8B), layout(2, checkpointed=True)),
    "autocast over fp32": lambda: (full(_8B), layout(**_AUTOCAST)),
    "tied, accumulating, foreach": lambda: (full(_1B, kernel="foreach"), layout(accumulation=4)),
    "a short sample, accumulating": lambda: (full(_8B, sequence=127), layout(accumulation=2)),
    "adapters": lambda: (lora(_8B), layout(**BF16_LORA)),
    "adapters on a quantised base": lambda: (
        lora(_8B, quantization=nf4()),
        layout(checkpointed=True, **BF16_LORA),
    ),
    "adapters with norms, merged": lambda: (
        _adapter(lora(_1B, dropout=0.1), dora=True, merge="device"),
        layout(checkpointed=True, **BF16_LORA),
    ),
    "segments of layers": lambda: (
        full(_8B),
        replace(
            layout(),
            activation_checkpointing=replace(
                layout(checkpointed=True).activation_checkpointing, segment=4
            ),
        ),
    ),
    "DDP": lambda: (full(_8B), layout(engine="ddp", world=8)),
    "ZeRO-0": lambda: (full(_8B), layout(stage=0, **_ZERO)),
    "ZeRO-1, accumulating": lambda: (full(_8B), layout(stage=1, accumulation=2, **_ZERO)),
    "ZeRO-2": lambda: (full(_1B), layout(stage=2, **_ZERO)),
    "ZeRO-2, optimizer on the host": lambda: (
        full(_8B),
        layout(stage=2, offload_optimizer="cpu", checkpointed=True, **_ZERO),
    ),
    "ZeRO-3": lambda: (full(_8B), layout(stage=3, checkpointed=True, **_ZERO)),
    "ZeRO-3, parameters on the host": lambda: (
        lora(_8B),
        layout(stage=3, offload_optimizer="cpu", offload_param="cpu", checkpointed=True, **_ZERO),
    ),
    "Muon at stage 1": lambda: (full(_1B, name="muon"), layout(stage=1, **_ZERO)),
    "stepped in the backward pass": lambda: (full(_8B, name="lomo"), layout()),
    "FSDP 2": lambda: (full(_8B), layout(engine="fsdp", world=8, fsdp=_FSDP_2, **_AUTOCAST)),
    "FSDP 2, tied, accumulating": lambda: (
        full(_1B),
        layout(
            engine="fsdp", world=8, fsdp=_FSDP_2, accumulation=2, checkpointed=True, **_AUTOCAST
        ),
    ),
    "FSDP 2, adapters, a loss in tiles": lambda: (
        lora(_8B, loss="chunked"),
        layout(engine="fsdp", world=8, fsdp=_FSDP_2, checkpointed=True, **_ADAPTING),
    ),
    "FSDP 2, adapters, a loss in tiles on the host": lambda: (
        lora(_8B, loss="chunked"),
        layout(
            engine="fsdp",
            world=8,
            fsdp=replace(_FSDP_2, offload_params=True),
            checkpointed=True,
            **_ADAPTING,
        ),
    ),
    "FSDP 2 of accelerate 1.12": lambda: (
        full(_8B, versions=(("accelerate", "1.12.0"),)),
        layout(engine="fsdp", world=8, fsdp=_FSDP_2, **_AUTOCAST),
    ),
    "FSDP 2, adapters with norms": lambda: (
        _adapter(lora(_1B), dora=True),
        layout(engine="fsdp", world=2, fsdp=_FSDP_2, **BF16_LORA),
    ),
    "stepped in the backward pass, autocast": lambda: (
        full(_1B, name="lomo"),
        layout(**_AUTOCAST),
    ),
    "FSDP 1": lambda: (full(_8B), layout(engine="fsdp", world=8, fsdp=FSDP_1, **_AUTOCAST)),
    "FSDP 1, adapters on a quantised base": lambda: (
        lora(_8B, quantization=nf4()),
        layout(engine="fsdp", world=2, fsdp=FSDP_1, checkpointed=True, **BF16_LORA),
    ),
    "pairs beside a reference": lambda: (
        lora(_1B, packing=False, preference=Preference(2, "base")),
        layout(**BF16_LORA),
    ),
    "pairs beside a second model": lambda: (
        full(_1B, packing=False, loss="chunked", preference=Preference(2, "resident")),
        layout(checkpointed=True),
    ),
    "answers of its own": lambda: (
        lora(_1B, preference=Preference(1, "base", 256), generation=_ANSWERS),
        layout(accumulation=2, checkpointed=True, **BF16_LORA),
    ),
    "answers of an engine": lambda: (
        lora(_1B, preference=Preference(1, "base", 256, True), generation_engine_bytes=10**9),
        layout(stage=3, checkpointed=True, **_ZERO),
    ),
    "answers of an engine, FSDP 2": lambda: (
        full(_1B, preference=Preference(1, "resident", 256, True)),
        layout(engine="fsdp", world=8, fsdp=_FSDP_2, checkpointed=True, **_AUTOCAST),
    ),
    "answers of its own, autocast": lambda: (
        full(_1B, preference=Preference(1, "none", 256), generation=_ANSWERS),
        layout(checkpointed=True, **_AUTOCAST),
    ),
    "answers of an engine, autocast": lambda: (
        full(_1B, loss="chunked", preference=Preference(1, "none", 256, True)),
        layout(checkpointed=True, **_AUTOCAST),
    ),
    "answers in evaluation": lambda: (
        full(_1B, evaluation="eval.jsonl", evaluated=Generation(768, 1, steps=256, beams=4)),
        layout(evaluation=2, engine="fsdp", world=8, fsdp=_FSDP_2, **_AUTOCAST),
    ),
    "a fused loss": lambda: (full(_8B, loss="fused"), layout()),
    "a loss in tiles": lambda: (full(_8B, loss="chunked"), layout()),
    "experts": lambda: (full(_MIXTRAL), layout()),
    "experts gathered by blocks": lambda: (
        full(_MIXTRAL),
        layout(stage=3, checkpointed=True, **_ZERO),
    ),
    "experts with adapters": lambda: (
        lora(_MIXTRAL, adapted=tuple(m for m in _MIXTRAL.modules if ".experts" in m.path)),
        layout(checkpointed=True, **BF16_LORA),
    ),
    "an encoder and a decoder": lambda: (full(_T5, sequence=509), layout(**_AUTOCAST)),
    "pictures": lambda: (lora(_QWEN_VL, **_PICTURE), layout(**BF16_LORA)),
    "pictures, the tower frozen, ZeRO-3": lambda: (
        lora(_QWEN_VL, **_PICTURE, adapted=_TEXT_ALONE),
        layout(stage=3, **_ZERO),
    ),
    "pictures, the tower trained": lambda: (full(_QWEN_VL, **_PICTURE), layout(checkpointed=True)),
    "a UNet, its encoders ahead": lambda: (
        full(_SDXL, sequence=1, images=1, image_width=1024, image_height=1024, components=_TEXTS),
        layout(**MIXED, checkpointed=True, engine="deepspeed", stage=2, world=2),
    ),
    "a diffusion transformer": lambda: (
        lora(
            _FLUX,
            sequence=0,
            images=1,
            image_width=1024,
            image_height=1024,
            adapted=tuple(m for m in _FLUX.modules if m.path.endswith("attn.to_q")),
        ),
        layout(**BF16_LORA),
    ),
    "a diffusion transformer, two samples": lambda: (_of_attention(_FLUX, 1024), layout(2)),
    "a diffusion transformer that attends to its text": lambda: (
        _of_attention(_WAN, 512),
        layout(),
    ),
    "a packed diffusion transformer under autocast": lambda: (
        replace(_of_attention(_FLUX, 1024), quantization=nf4()),
        layout(checkpointed=True, autocast=True),
    ),
}


def symbols(workload: Workload, plan: Layout) -> dict[str, int]:
    """What the closed sums of a plan are made of."""
    asked = workload.architecture
    text = [each for each in asked.stacks if each.part == "text"]
    adapted, rank = workload.adapted, workload.adapter.rank
    found = {
        "P": asked.parameters,
        "E": asked.vocab * asked.hidden,
        "B": plan.zero.reduce_bucket,
        "h": asked.hidden,
        "V": asked.vocab,
        "r": rank,
        "M": sum(m.copies for m in adapted),
        "I": sum(m.shape[-1] * m.copies for m in adapted),
        "R": sum(rank * sum(m.shape) * m.copies for m in adapted),
        "L": sum(each.layers for each in asked.stacks),
        "T": plan.batch.micro * workload.data.sequence,
        "N": plan.parallel.data,
    }
    if not text:
        return found
    h, f, a = asked.hidden, text[0].ffn, text[0].heads
    q, k = a * text[0].head_dim, text[0].kv_heads * text[0].head_dim
    kept = 4 * q + 4 * k + 4 * a
    layer = h * (2 * q + 2 * k) + 3 * h * f + 2 * h
    widths = {"f": f, "q": q, "k": k, "a": a, "G": layer}
    return found | widths | {"A": 16 * h + kept + 8 * f, "F": 8 * h + kept + 6 * f}
