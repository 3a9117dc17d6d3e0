"""What a model's own dropout keeps, against traces of the real models."""

from typing import Any

import pytest
from workload_builders import full, layout, model

from tunec.compiler.analyses.architecture.derive import KEYS, dropout_of
from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.text import text_activations
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.models.architecture import Dropout

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.recording.traces import recorded  # noqa: E402
from traced_peaks import peaks_of  # noqa: E402

SAMPLES, TOKENS, LAYERS, HIDDEN = 1, 64, 1, 256
GPT2 = {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 4, "vocab_size": 512}
USUAL = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "vocab_size": 512,
}
T5 = {"d_model": HIDDEN, "d_ff": 768, "d_kv": 64, "num_layers": LAYERS, "num_heads": 4}
BART = {
    "d_model": HIDDEN,
    **{f"{half}_layers": LAYERS for half in ("encoder", "decoder")},
    **{f"{half}_attention_heads": 4 for half in ("encoder", "decoder")},
    **{f"{half}_ffn_dim": 1024 for half in ("encoder", "decoder")},
}
WIDE = {"intermediate_size": 1024}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "opt": ("OPTForCausalLM", USUAL | {"ffn_dim": 1024, "word_embed_proj_dim": HIDDEN}),
    "t5": ("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "relu", "vocab_size": 512}),
    "bart": ("BartForConditionalGeneration", BART | {"vocab_size": 512}),
    "bert": ("BertForMaskedLM", USUAL | WIDE),
    "starcoder2": ("Starcoder2ForCausalLM", USUAL | WIDE | {"num_key_value_heads": 4}),
}
"""By family: the class and the config."""


def drops(family: str, share: float) -> dict[str, float]:
    return {key.name: share for key in KEYS[family] if key is not None}


@recorded
def traced(family: str, share: float, attention: str) -> float:
    """Bytes a token that a forward pass keeps."""
    name, config = CASES[family]
    kind = getattr(transformers, name)
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    beside = {"embedding_dropout": share, "embd_pdrop": share} if family != "opt" else {}
    settings = kind.config_class(**config, **drops(family, share), **beside, **ends)
    settings._attn_implementation = attention
    with torch.device("meta"):
        built = kind(settings).to(torch.bfloat16)
        given = torch.zeros(SAMPLES, TOKENS, dtype=torch.long)
    both = {"decoder_input_ids": given} if settings.is_encoder_decoder else {}

    def loss() -> Any:
        return built(input_ids=given, **both).logits.sum()

    peaks = peaks_of(built.train(), loss)
    return (peaks.kept - peaks.static) / (SAMPLES * TOKENS)


def accounted(family: str, share: float, attention: str) -> float:
    config = {"model_type": family, **CASES[family][1], **drops(family, share)}
    kernel = AttentionKernel(attention)
    workload = full(model(config), attention=kernel, sequence=TOKENS)
    run = Pass(layout().states, checkpointed=False, padded=False, sequence_parallel=1)
    return sum(text_activations(workload, run).kept.values()) / TOKENS


@pytest.mark.parametrize(
    ("family", "attention"), [*((family, "eager") for family in CASES), ("t5", "sdpa")]
)
def test_dropout_keeps_what_a_trace_of_it_does(family: str, attention: str) -> None:
    found, real = (
        read(family, 0.1, attention) - read(family, 0.0, attention) for read in (accounted, traced)
    )
    assert real == found


def test_usual_shares_are_those_of_the_config_classes() -> None:
    for family, keys in KEYS.items():
        usual = transformers.AutoConfig.for_model(family)
        given = {key.name: getattr(usual, key.name) for key in keys if key is not None}
        assert given == {key.name: key.usual for key in keys if key is not None}, family


def test_a_share_of_nothing_and_a_family_without_it() -> None:
    assert dropout_of("gpt2", {}) == Dropout(states=True, scores=True)
    assert dropout_of("gpt2", {"resid_pdrop": 0, "attn_pdrop": 0.0}) == Dropout()
    assert dropout_of("llama", {"attention_dropout": 0.1}) == Dropout(scores=True)
    assert dropout_of("opt", {"dropout": None}) == Dropout()
