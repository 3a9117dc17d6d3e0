"""Derived cards: what is read off a real class, held against families' rules and traces."""

import json
from functools import cache

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.driver.planning import planned  # noqa: E402
from tests.recording.derived_cards import derived  # noqa: E402
from tests.recording.traces import run  # noqa: E402
from tests.tracing.small_configs import SMALL  # noqa: E402
from workload_builders import BF16_LORA, FP32, full, layout, lora  # noqa: E402

from tunec.compiler.analyses.architecture import (  # noqa: E402
    derive,
    expert_parameters,
    is_refused,
)
from tunec.compiler.analyses.architecture.lora import lora_parameters, matching  # noqa: E402
from tunec.compiler.analyses.memory.account import account  # noqa: E402
from tunec.compiler.analyses.trainable import adapted_modules  # noqa: E402
from tunec.compiler.ir.slots import AttentionKernel  # noqa: E402
from tunec.compiler.tracing.comparison import compare  # noqa: E402
from tunec.compiler.tracing.live.derivation.curves import Lengths, fitted  # noqa: E402
from tunec.compiler.tracing.live.derivation.layers import layers_of  # noqa: E402
from tunec.compiler.tracing.live.derivation.module_tree import module_tree  # noqa: E402
from tunec.compiler.tracing.subject import Subject, Untraceable  # noqa: E402
from tunec.schemas.models.catalogue import card as catalogued  # noqa: E402
from tunec.schemas.models.derived_card import DerivedCard, card_name  # noqa: E402
from tunec.schemas.models.layer_measures import highest  # noqa: E402

EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 8, "num_experts": 8}
CONFIGS = {
    "qwen3": {**SMALL, "model_type": "qwen3"},
    "mixtral": {**SMALL, **EXPERTS, "model_type": "mixtral"},
    "smollm3": {**SMALL, "model_type": "smollm3"},
    "gpt_oss": {
        **SMALL,
        **EXPERTS,
        "model_type": "gpt_oss",
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "nemotron_h": {
        **SMALL,
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M-M*-M-M*-",
        "mamba_num_heads": 8,
        "mamba_head_dim": 64,
        "ssm_state_size": 32,
        "n_groups": 2,
        "chunk_size": 128,
    },
    "falcon_h1": {
        **SMALL,
        "model_type": "falcon_h1",
        "mamba_d_ssm": 512,
        "mamba_n_heads": 8,
        "mamba_d_head": 64,
        "mamba_d_state": 64,
        "mamba_chunk_size": 128,
    },
    "granitemoehybrid": {
        **SMALL,
        **EXPERTS,
        "model_type": "granitemoehybrid",
        "layer_types": ["mamba", "mamba", "attention", "mamba"],
        "mamba_n_heads": 8,
        "mamba_d_head": 64,
        "mamba_d_state": 64,
        "mamba_chunk_size": 256,
        "shared_intermediate_size": 384,
    },
    "gemma4_text": {
        **SMALL,
        "model_type": "gemma4_text",
        "num_hidden_layers": 8,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
        "sliding_window": 512,
        "global_head_dim": 128,
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 1536,
        "num_kv_shared_layers": 4,
        "use_double_wide_mlp": True,
        "enable_moe_block": False,
        "tie_word_embeddings": True,
    },
    "modernbert": {
        **{key: value for key, value in SMALL.items() if key not in ("head_dim", "pad_token_id")},
        "model_type": "modernbert",
        "tie_word_embeddings": True,
        "local_attention": 128,
        "pad_token_id": 0,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "camembert": {
        **{key: value for key, value in SMALL.items() if key != "head_dim"},
        "model_type": "camembert",
        "architectures": ["CamembertForMaskedLM"],
    },
    "mamba": {
        "model_type": "mamba",
        "vocab_size": 1536,
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "state_size": 16,
        "time_step_rank": 24,
    },
    "mvp": {
        "model_type": "mvp",
        "architectures": ["MvpForConditionalGeneration"],
        "vocab_size": 1536,
        "d_model": 256,
        "max_position_embeddings": 4096,
        **{f"{half}_layers": 6 for half in ("encoder", "decoder")},
        **{f"{half}_attention_heads": 4 for half in ("encoder", "decoder")},
        **{f"{half}_ffn_dim": 704 for half in ("encoder", "decoder")},
    },
    "longformer": {
        "model_type": "longformer",
        "architectures": ["LongformerForMaskedLM"],
        "num_hidden_layers": 3,
        "attention_window": 512,
        "max_position_embeddings": 4098,
    },
    "whisper": {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "pad_token_id": 0,
        "vocab_size": 1536,
        "d_model": 256,
        "max_target_positions": 4096,
        **{f"{half}_layers": 6 for half in ("encoder", "decoder")},
        **{f"{half}_attention_heads": 4 for half in ("encoder", "decoder")},
        **{f"{half}_ffn_dim": 704 for half in ("encoder", "decoder")},
    },
    "longcat_flash": {
        **{key: value for key, value in SMALL.items() if key != "num_hidden_layers"},
        "model_type": "longcat_flash",
        "num_layers": 3,
        "head_dim": 16,
        "num_key_value_heads": 4,
        "ffn_hidden_size": 384,
        "expert_ffn_hidden_size": 128,
        "q_lora_rank": 64,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "n_routed_experts": 8,
        "zero_expert_num": 4,
        "moe_topk": 2,
    },
}
FAR = [
    *("smollm3", "gpt_oss", "nemotron_h", "falcon_h1", "granitemoehybrid", "mvp", "whisper"),
    "longformer",
]


@cache
def card(name):
    return derived(CONFIGS[name])


@pytest.mark.parametrize("name", ["qwen3", "mixtral", "camembert"])
def test_modules_are_those_of_the_familys_rule(name):
    """CamemBERT's head stands before its body, which keeps the weight that both share."""

    def facts(model):
        return {(m.path, m.kind, m.shape, m.bias, m.copies) for m in model.modules}

    found, said = card(name).architecture, derive(CONFIGS[name])
    assert facts(found) == facts(said)
    assert (found.head, found.embedding, found.tied) == (said.head, said.embedding, said.tied)


def test_kinds_of_layers_are_told_apart():
    sliding, whole = card("gpt_oss").architecture.stacks
    assert (sliding.layers, sliding.window, whole.layers, whole.window) == (2, 128, 2, None)
    assert sliding.experts is not None
    assert (sliding.experts.count, sliding.experts.active) == (8, 2)
    assert card("gpt_oss").architecture.eager


def test_a_window_of_a_config_without_words_for_layers_is_that_of_all():
    (stack,) = derived({**CONFIGS["mixtral"], "sliding_window": 128}).architecture.stacks
    assert (stack.window, stack.windowed_layers) == (128, stack.layers)


def test_a_class_that_reads_packed_weights_itself_has_no_measures_over_them():
    """LongCat's router multiplies with its weight, and its layers hold two attentions."""
    found = card("longcat_flash").architecture
    ways = {each.way for stack in found.stacks for each in stack.measured}
    assert sum(stack.layers for stack in found.stacks) == 3
    assert "size mismatch" in found.unpacked
    assert any(way.startswith("frozen") for way in ways)
    assert not any("packed" in way for way in ways)
    assert not card("qwen3").architecture.unpacked
    whole = {"path": "some/model", "config": json.loads(card("longcat_flash").to_json())}
    made = planned(model=whole, method="qlora", data={"train": "a.jsonl", "sequence": 512})
    (refused,) = [each for each in made.diagnostics if each.id == "E0602"]
    assert "fails over packed weights: size mismatch" in refused.message


def test_an_encoder_has_a_masked_language_head_and_sees_both_ways():
    found = card("modernbert").architecture
    assert (found.kind, found.head, found.tied) == ("encoder", "decoder", True)
    assert [(each.layers, each.window) for each in found.stacks] == [(1, None), (2, 64), (1, None)]
    assert not any(each.causal for each in found.stacks)
    assert {each.norm for each in found.stacks} == {"layer"}


def test_an_encoder_and_its_decoder_are_lists_of_their_own():
    """MVP's norms come after, so that autocast widens what layers hand on; its loss shifts none."""
    found = card("mvp").architecture
    assert (found.kind, found.embedding, found.head) == (
        "encoder-decoder",
        "model.shared",
        "lm_head",
    )
    assert [(s.layers, s.causal, s.cross_attention) for s in found.stacks] == [
        (6, False, 0),
        (6, True, 256),
    ]
    assert found.plain_loss
    assert found.wide_stream
    assert not card("qwen3").architecture.plain_loss


def test_an_encoder_that_hears_has_a_length_of_its_own():
    """Thirty seconds of sound, whatever the text's length; each decoder layer attends to them."""
    found = card("whisper").architecture
    assert [(s.layers, s.positions, s.cross_attention) for s in found.stacks] == [
        (6, 1500, 0),
        (6, 0, 256),
    ]
    heard = {m.path.rpartition("layers.{}.")[2] for m in found.modules if m.positions}
    assert heard > {"encoder_attn.k_proj", "encoder_attn.v_proj", "self_attn.q_proj"}
    assert "encoder_attn.q_proj" not in heard
    before, after = (stack.measured[0].saved for stack in found.stacks)
    assert [each.sample for each in before] == [0]
    assert [each.sample > 0 for each in after] == [True]


@pytest.mark.parametrize("model", ["modernbert-base", "distilbert-base-uncased"])
@pytest.mark.parametrize("which", range(4), ids=["full", "recomputed", "lora", "autocast"])
def test_the_account_of_an_encoder_that_comes_with_tunec_is_as_traced(which, model):
    """Autocast has ModernBERT's norm of its embedding in fp32, so that layers add to fp32.

    DistilBERT's loss is a module of its own, whose tensors the account knows.
    """
    config = catalogued(model).config
    found = derive(config)
    plans = [*workloads(found, min(1500, found.context - 12))]
    plans.append((plans[2][0], layout(2, checkpointed=True, autocast=True, **BF16_LORA)))
    workload, plan = plans[which]
    trace = run(Subject(config, workload, plan))
    assert abs(compare(trace, account(workload, plan)).error) < 0.015


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("deberta-v3-small", 141_304_320),
        ("deberta-v3-base", 183_831_552),
        ("deberta-v3-large", 434_012_160),
    ],
)
def test_the_body_of_deberta_has_the_parameters_that_are_published(name, parameters):
    """keras-team/keras-hub 0e1444f keras_nlp deberta_v3_presets.py, `params` of the backbones."""
    found = derive(catalogued(name).config)
    assert sum(m.parameters for m in found.modules if m.path.startswith("deberta.")) == parameters


@pytest.mark.parametrize("samples", [1, 2, 8])
@pytest.mark.parametrize("which", range(3), ids=["full", "recomputed", "autocast"])
def test_what_samples_have_in_common_is_there_once(which, samples):
    """DeBERTa's relative positions, of which each layer keeps two tables for all samples."""
    config = catalogued("deberta-v3-small").config
    found = derive(config)
    assert all(stack.measured[0].common for stack in found.stacks)
    options = {"sequence": 500, "attention": AttentionKernel("eager"), "packing": True}
    plan = layout(
        samples, checkpointed=which == 1, **({"autocast": True, **FP32} if which == 2 else {})
    )
    workload = full(found, **options)
    trace = run(Subject(config, workload, plan))
    assert abs(compare(trace, account(workload, plan)).error) < 0.01


def test_texts_that_a_class_pads_fill_windows():
    """Longformer's to the window of its attention."""
    found = card("longformer").architecture
    assert (found.window, card("qwen3").architecture.window) == (512, 0)
    padded = {curve.chunk for each in found.stacks[0].measured for curve in each.saved}
    assert padded == {512}


def test_layers_with_other_switches_are_of_another_kind():
    """PEGASUS-X's encoder shifts the blocks of every other layer, which fill one block more."""
    transformers = pytest.importorskip("transformers")
    config = transformers.PegasusXConfig(
        d_model=64, vocab_size=128, encoder_layers=5, decoder_layers=3, encoder_attention_heads=2
    )
    with torch.device("meta"):
        encoder = transformers.PegasusXModel(config).get_encoder()
    config.num_hidden_layers = config.encoder_layers
    assert layers_of(encoder, config).kinds == ((0, 2, 4), (1, 3))


def test_modules_that_no_text_reaches_are_never_called():
    """Longformer's global attention, of which a batch of text alone marks no token."""
    found = card("longformer").architecture
    idle = {m.path.rpartition(".")[2] for m in found.modules if not m.calls}
    assert idle == {"query_global", "key_global", "value_global"}
    adapted = tuple(m for m in found.modules if m.path.endswith(("query", "query_global")))
    options = {"sequence": 1500, "attention": AttentionKernel("eager"), "packing": True}
    one, both = (
        account(lora(found, adapted=modules, **options), layout(2, **BF16_LORA))
        for modules in (adapted[:1], adapted)
    )
    apart = {
        name
        for name, size in both.phases["loss backward"].items()
        if size != one.phases["loss backward"].get(name)
    }
    assert apart == {"adapters"}


def test_layers_that_store_and_reuse_keys_and_values_are_kinds_of_their_own():
    """And what all layers are given at once is measured for all of them."""
    found = card("gemma4_text").architecture
    assert [stack.layers for stack in found.stacks] == [2, 1, 1, 3, 1]
    assert [stack.head_dim for stack in found.stacks] == [64, 64, 128, 64, 128]
    per_layer = 8 * 32 * torch.bfloat16.itemsize
    assert found.around[0].saved[0].token > 2 * per_layer
    workload, plan = next(iter(workloads(found)))
    trace = run(Subject(CONFIGS["gemma4_text"], workload, plan))
    assert abs(compare(trace, account(workload, plan)).error) < 0.015


@pytest.mark.parametrize("samples", [1, 3])
def test_a_class_that_takes_a_step_a_token_is_measured_at_short_lengths(samples):
    """And apart where there is one sample, which takes less than each of several."""
    found = card("mamba").architecture
    ways = {each.way for each in found.stacks[0].measured}
    assert {"trained 2 eager", "trained 2 eager alone"} <= ways
    kernel = AttentionKernel("eager")
    workload = full(found, sequence=300, attention=kernel, packing=True)
    trace = run(Subject(CONFIGS["mamba"], workload, layout(samples)))
    assert abs(compare(trace, account(workload, layout(samples))).error) < 0.02


def test_experts_without_names_of_their_own_are_adapted_as_parameters():
    """gpt-oss: as many parameters as PEFT adds for `target_parameters`, with the rank itself."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    found = derived(CONFIGS["gpt_oss"]).architecture
    names = expert_parameters(found)
    assert names == ("experts.gate_up_proj", "experts.down_proj")
    config = transformers.GptOssConfig(**CONFIGS["gpt_oss"])
    with torch.device("meta"):
        real = transformers.GptOssForCausalLM(config)
        asked = peft.LoraConfig(r=4, target_modules=["q_proj"], target_parameters=list(names))
        adapted = peft.get_peft_model(real, asked)
    trained, _ = adapted.get_nb_trainable_parameters()
    modules = adapted_modules(found, ("q_proj",), names)
    assert {module.path.rpartition(".")[2] for module in modules} == {
        *("q_proj", "gate_up_proj", "down_proj")
    }
    assert trained == lora_parameters(found, modules, 4)


ROUTED = {**SMALL, **EXPERTS, "model_type": "phimoe", "num_hidden_layers": 2}


def test_a_router_that_answers_twice_is_adapted_by_no_plan():
    """`PhimoeTopKRouter` is a subclass of Linear: PEFT reaches it, and its first pass fails."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    found = derived(ROUTED).architecture
    router = next(each for each in found.modules if each.kind == "router")
    assert router.path == "model.layers.{}.mlp.router"
    assert is_refused(found, router)
    real = transformers.PhimoeForCausalLM(transformers.PhimoeConfig(**ROUTED))
    adapted = peft.get_peft_model(real, peft.LoraConfig(r=4, target_modules="all-linear"))
    trained, _ = adapted.get_nb_trainable_parameters()
    assert trained == lora_parameters(found, matching(found, "all-linear"), 4)
    with pytest.raises(AttributeError, match="'tuple' object has no attribute 'dtype'"):
        adapted(input_ids=torch.zeros(1, 4, dtype=torch.long))


def workloads(model, sequence=1500):
    inside = (m for m in model.modules if m.kind == "linear" and "{}" in m.path)
    adapted = tuple(m for m in inside if not is_refused(model, m))
    kernel = AttentionKernel("eager" if model.eager else "sdpa")
    options = {"sequence": sequence, "attention": kernel, "packing": True}
    yield full(model, **options), layout(1)
    yield full(model, **options), layout(2, checkpointed=True)
    yield lora(model, adapted=adapted, **options), layout(2, **BF16_LORA)


@pytest.mark.parametrize("name", FAR)
@pytest.mark.parametrize("which", range(3), ids=["full", "recomputed", "lora"])
def test_the_account_of_a_family_without_a_rule_is_as_traced(name, which):
    """At a length, and of as many samples, that nothing was derived from."""
    workload, plan = [*workloads(card(name).architecture)][which]
    trace = run(Subject(CONFIGS[name], workload, plan))
    assert abs(compare(trace, account(workload, plan)).error) < 0.015


def test_a_card_is_read_as_it_was_written():
    for made in map(card, CONFIGS):
        again = DerivedCard.of_json(made.to_json())
        assert again.architecture == made.architecture
        assert hash(again.architecture) == hash(made.architecture)


def test_keys_that_define_no_module_leave_the_name_of_a_card_as_it_is():
    config = CONFIGS["qwen3"]
    assert card_name(config) == card_name({**config, "transformers_version": "4.51.0"})
    assert card_name(config) != card_name({**config, "hidden_size": 512})


def test_layers_of_a_state_space_compare_no_tokens_though_a_router_weighs_experts():
    found = card("granitemoehybrid").architecture
    assert [(each.layers, each.attends) for each in found.stacks] == [(3, False), (1, True)]


def test_modules_whose_places_are_no_product_have_their_own_names():
    """As the attentions of a UNet, of which each level has another number."""
    levels = ([torch.nn.Linear(2, 2) for _ in range(count)] for count in (2, 1, 2))
    model = torch.nn.Sequential(*(torch.nn.Sequential(*each) for each in levels))
    names = {name for each in module_tree(model) for name in each.names()}
    assert names == {"0.0", "0.1", "1.0", "2.0", "2.1"}


LENGTHS = Lengths((640, 1216), (1000, 1777, 2111))
MANY = Lengths((768, 1280, 2304), (900, 1000, 1100, 1290, 1411, 1553, 1777, 1925, 2111, 2605))


def test_a_curve_holds_at_lengths_that_it_was_not_fitted_to():
    line = {s: 100.0 + 2 * s for s in LENGTHS.all}
    assert highest(fitted(line, LENGTHS, "kept"), 3000) == pytest.approx(6100)
    chunks = {s: 100.0 + 50 * (-(-s // 64) * 64) / s for s in LENGTHS.all}
    assert highest(fitted(chunks, LENGTHS, "kept"), 3001) == pytest.approx(100 + 50 * 3008 / 3001)
    larger = {s: max(5000.0, 8.0 * s - 3000) for s in LENGTHS.all}
    assert highest(fitted(larger, LENGTHS, "kept"), 4000) == pytest.approx(29000)


def test_the_gradient_of_a_bias_is_filled_up():
    """As T5's is: 16 tokens of each row, and a moment that is the highest of short samples."""

    def bytes_at(length):
        filled = -(-length // 16) * 16
        return max(5632.0 + 16 * filled, 32.0 * filled - 11268)

    curves = fitted({s: bytes_at(s) for s in MANY.all}, MANY, "working")
    for length in (500, 1500, 3001):
        assert highest(curves, length) == pytest.approx(bytes_at(length), rel=1e-3)


def test_the_highest_of_moments_that_fill_the_last_chunk_is_found():
    """One moment is the highest where the last chunk is nearly full, another where it is not."""

    def bytes_at(length):
        filled = -(-length // 256) * 256 - length
        return max(36864 * length + 9e5, 36600 * length + 180_000 * filled)

    curves = fitted({s: bytes_at(s) / s for s in MANY.all}, MANY, "working")
    for length in (500, 1500, 2048, 3001, 4096):
        assert highest(curves, length) == pytest.approx(bytes_at(length) / length, rel=2e-3)


def test_bytes_without_a_curve_are_refused():
    with pytest.raises(Untraceable, match="follow no curve"):
        fitted({s: float(s % 97) for s in LENGTHS.all}, LENGTHS, "kept")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "no_such_family"}, "no class for the family 'no_such_family'"),
        ({"model_type": "qwen3", "hidden_size": "wide"}, "refuses the config|cannot be built"),
        ({"model_type": "clip_vision_model"}, "no class with a language model's head"),
        (
            {"model_type": "whisper", "architectures": ["WhisperForCausalLM"]},
            "a decoder without the encoder",
        ),
        ({"model_type": "speech_to_text"}, "sounds of any length"),
        (
            {"model_type": "longt5", "d_model": 64, "vocab_size": 96},
            "hand on more than their states",
        ),
        (
            {"model_type": "modernbert", "architectures": ["ModernBertForSequenceClassification"]},
            "no output projection",
        ),
    ],
)
def test_what_cannot_be_derived_is_told(config, reason):
    with pytest.raises(Untraceable, match=reason):
        derived(config)
