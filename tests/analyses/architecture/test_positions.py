"""How long a sequence may be, against the classes themselves: it runs, and one token more fails."""

import pytest

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.passes.resolve_data import _has_table
from tunec.schemas.models.catalogue import card

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tunec.compiler.tracing.live.derivation.architecture import _context  # noqa: E402
from tunec.compiler.tracing.live.derivation.halves import halves_of  # noqa: E402

ENCODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 24,
    "type_vocab_size": 1,
}
CLASSES = {
    "bert": ("BertForMaskedLM", 24),
    "roberta": ("RobertaForMaskedLM", 22),
    "xlm-roberta": ("XLMRobertaForMaskedLM", 22),
    "camembert": ("CamembertForMaskedLM", 22),
    "xlm-roberta-xl": ("XLMRobertaXLForMaskedLM", 22),
    "mpnet": ("MPNetForMaskedLM", 22),
    "data2vec-text": ("Data2VecTextForMaskedLM", 22),
    "electra": ("ElectraForMaskedLM", 24),
    "opt": ("OPTForCausalLM", 24),
    "gpt2": ("GPT2LMHeadModel", 24),
}


def build(family):
    made = transformers.CONFIG_MAPPING[family](**{**ENCODER, "ffn_dim": 48})
    if family == "opt":
        made.word_embed_proj_dim = 32
    return getattr(transformers, CLASSES[family][0])(made).eval()


def runs(model, tokens):
    """Whether a sequence of so many tokens, none of which is padding, has a position for each."""
    words = torch.full((1, tokens), 5)
    try:
        model(input_ids=words, attention_mask=torch.ones_like(words))
    except (IndexError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("family", CLASSES)
def test_the_longest_sequence_runs_and_one_token_more_fails(family):
    model = build(family)
    longest = _context(model, halves_of(model))
    assert longest == CLASSES[family][1]
    assert runs(model, longest)
    assert not runs(model, longest + 1)


DECODER = {
    **ENCODER,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "pad_token_id": 0,
    "d_model": 32,
    "n_heads": 2,
    "n_layers": 1,
    "max_seq_len": 24,
    "rotary_dim": 8,
}
ENDS = {
    **dict.fromkeys(("llama", "qwen3", "gemma2", "phi3", "gpt_neox", "falcon", "bloom"), False),
    **dict.fromkeys(("gpt2", "gptj", "mpt", "opt"), True),
}


@pytest.mark.parametrize("family", ENDS)
def test_what_is_beyond_the_context_fails_where_a_table_ends_and_runs_elsewhere(family):
    keys = transformers.CONFIG_MAPPING[family]().to_dict().keys()
    names = transformers.CONFIG_MAPPING[family].attribute_map.keys()
    config = {key: value for key, value in DECODER.items() if key in {*keys, *names, "ffn_dim"}}
    made = transformers.CONFIG_MAPPING[family](**config, word_embed_proj_dim=32, ffn_dim=48)
    model = transformers.AutoModelForCausalLM.from_config(made).eval()
    assert runs(model, 24)
    assert runs(model, 60) is not ENDS[family]
    assert _has_table(derive({"model_type": family, **config})) is ENDS[family]


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_rules_know_the_same(family):
    assert derive({"model_type": family, **ENCODER}).context == CLASSES[family][1]


def test_a_table_begins_after_the_padding_that_the_config_names():
    config = {"model_type": "roberta", **ENCODER, "pad_token_id": 3}
    made = transformers.RobertaConfig(**{**ENCODER, "pad_token_id": 3})
    assert derive(config).context == 20
    model = transformers.RobertaForMaskedLM(made).eval()
    assert runs(model, 20)
    assert not runs(model, 21)


def test_distances_in_buckets_have_no_longest():
    made = transformers.DebertaV2Config(
        **{**ENCODER, "relative_attention": True, "position_buckets": 8},
        position_biased_input=False,
        norm_rel_ebd="layer_norm",
        pos_att_type="p2c|c2p",
    )
    assert runs(transformers.DebertaV2ForMaskedLM(made).eval(), 100)


@pytest.mark.parametrize(
    "name", ["FacebookAI/xlm-roberta-base", "roberta-large", "distilroberta-base"]
)
def test_models_of_robertas_kind_read_512_tokens(name):
    found = card(name)
    assert derive(found.config).context == 512
