"""Which models FSDP cannot split, held against accelerate, torch and the classes themselves."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from accelerate.utils import FullyShardedDataParallelPlugin, fsdp_utils  # noqa: E402
from packaging.version import Version  # noqa: E402

from tunec.compiler.analyses.architecture import derive  # noqa: E402
from tunec.compiler.analyses.fsdp_units import (  # noqa: E402
    INSIDE_UNIT,
    TIED_BIAS,
    WITH_BUFFERS,
    embedding_in_two_units,
)
from tunec.compiler.tracing.live.step import fake_ranks  # noqa: E402
from tunec.schemas.models.catalogue import card, card_names  # noqa: E402

LAYERS = {"num_hidden_layers": 2, "vocab_size": 128}
BERT = {
    **LAYERS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
T5 = {
    "vocab_size": 128,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
BART = {
    "vocab_size": 128,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
GPT_2 = {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT_2 |= {"bos_token_id": 0, "eos_token_id": 0}
LLAMA = {**BERT, "num_key_value_heads": 2}
CASES = {
    "t5": ("t5", T5, "T5ForConditionalGeneration", True),
    "t5-encoder": ("t5", T5, "T5EncoderModel", True),
    "bart": ("bart", BART, "BartForConditionalGeneration", True),
    "bert": ("bert", BERT, "BertForMaskedLM", True),
    "bert-plain": ("bert", BERT, "BertModel", True),
    "roberta": ("roberta", BERT, "RobertaForMaskedLM", True),
    "gpt2": ("gpt2", GPT_2, "GPT2LMHeadModel", False),
    "llama": ("llama", LLAMA, "LlamaForCausalLM", False),
    "llama-untied": (
        "llama",
        LLAMA | {"tie_word_embeddings": False},
        "LlamaForCausalLM",
        False,
    ),
}


def fails(model, ids):
    """Whether what accelerate makes of the model has no first pass."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        cpu_ram_efficient_loading=False,
    )
    accelerator = type("Asked", (), {})()
    accelerator.state = type("State", (), {"fsdp_plugin": plugin})()
    accelerator.mixed_precision, accelerator.is_main_process = "no", True
    try:
        fsdp_utils.fsdp2_prepare_model(accelerator, model)(input_ids=ids)
    except (TypeError, ValueError) as fault:
        return any(word in str(fault) for word in ("FSDP group", "Invariant encountered"))
    return False


@pytest.mark.parametrize("name", CASES)
def test_a_model_fails_under_fsdp_2_where_it_is_said_to(name):
    family, config, made, expected = CASES[name]
    found = derive({**config, "model_type": family, "architectures": [made]})
    released = Version(pytest.importorskip("accelerate").__version__)
    assert (embedding_in_two_units(found, 2, released) is not None) == expected
    model = getattr(transformers, made)(transformers.CONFIG_MAPPING[family](**config))
    with fake_ranks(2):
        assert fails(model, torch.zeros(1, 8, dtype=torch.long)) == expected


ENCODERS = sorted(transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.items())


def test_the_families_are_those_whose_classes_are_built_so():
    inside, shared, built = set(), set(), 0
    for family, name in ENCODERS:
        config = transformers.CONFIG_MAPPING[family]()
        try:
            with torch.device("meta"):
                model = getattr(transformers, name)._from_config(config)
            embedding, output = model.get_input_embeddings(), model.get_output_embeddings()
        except Exception:  # noqa: BLE001, S112  a default config that builds nothing shows nothing
            continue
        built += 1
        units = [each for each in model.modules() if type(each).__name__ in model._no_split_modules]
        if any(embedding in each.modules() for each in units):
            inside.add(family)
        bias = getattr(output, "bias", None)
        owners = [e for e in model.modules() for p in e._parameters.values() if p is bias]
        if bias is not None and len(owners) > 1:
            shared.add(family)
    assert built > 40
    assert (inside, shared) == (set(INSIDE_UNIT), set(TIED_BIAS))


WITHOUT = {"bert", "gemma3", "gpt2", "gpt_oss", "llama", "mixtral", "qwen3_moe", "qwen3_vl", "t5"}


@pytest.mark.parametrize("family", sorted(WITH_BUFFERS | WITHOUT))
def test_families_whose_state_holds_buffers_are_known(family):
    configs = (card(name).config for name in card_names())
    config = next(each for each in configs if each.get("model_type") == family)
    made = transformers.CONFIG_MAPPING[family].from_dict(dict(config))
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(made)
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert bool(model.state_dict().keys() - trained) == (family in WITH_BUFFERS)
