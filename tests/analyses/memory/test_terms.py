"""Single terms that rows of the trace table rest on, by what they are made of."""

from math import prod

import pytest
from workload_builders import (
    ATTENTION,
    BF16_LORA,
    FP32,
    FSDP_1,
    LLAMA_3_8B,
    LLAMA_32_1B,
    full,
    layout,
    lora,
    matching,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.diffusion import modulation_saved
from tunec.compiler.analyses.memory.layers import feed_forward_saved
from tunec.compiler.analyses.memory.lora import weights_kept
from tunec.compiler.analyses.memory.terms.fsdp_units import unit_sizes, units_of
from tunec.compiler.analyses.memory.terms.weights import causal_masks
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.frozen import replace
from tunec.schemas.models.catalogue import card

MODEL = model(LLAMA_3_8B)
TIED = model(LLAMA_32_1B)
AUTOCAST = FP32 | {"autocast": True}
FLUX = model(card("flux.1-dev").config)
GPT_J = model({"model_type": "gptj"})
BIGCODE = {"model_type": "gpt_bigcode", "n_positions": 8192}
FSDP_2 = replace(FSDP_1, version=2)
ENDS = 2 * 128256 * 4096 + 4096


def states(**changes):
    return layout(**changes).states


def test_a_unit_of_fsdp_is_a_layer_and_the_ends_are_the_root_of_version_1():
    units = units_of(full(MODEL), FSDP_1, states(**AUTOCAST))
    assert units.every == (2 * MODEL.parameters, MODEL.parameters)
    assert units.root == (2 * ENDS, ENDS)
    assert units.layer.trained == (MODEL.parameters - ENDS) / 32


def test_version_2_has_units_for_both_ends_since_accelerate_1_14():
    units = units_of(full(MODEL), FSDP_2, states(**AUTOCAST))
    assert units.embedding.trained == 128256 * 4096
    assert units.tail.trained == 128256 * 4096 + 4096
    assert units.root.size == 0
    before = full(MODEL, versions=(("accelerate", "1.13.0"),))
    assert units_of(before, FSDP_2, states(**AUTOCAST)).root.trained == ENDS


def test_a_tied_weight_is_in_the_tail():
    units = units_of(full(TIED), FSDP_2, states(**AUTOCAST))
    assert units.embedding.size == 0
    assert units.tail.trained == 128256 * 2048 + 2048


def test_units_of_version_1_come_whole_in_their_own_dtype_when_saved():
    sizes = dict(unit_sizes(full(MODEL), FSDP_1, states(**AUTOCAST)))
    assert sizes == {4.0 * ENDS: 1, 4 * (MODEL.parameters - ENDS) / 32: 32}


def saving(fsdp, **how):
    plan = layout(engine="fsdp", world=8, fsdp=fsdp, **AUTOCAST, **how)
    return account(full(MODEL), plan).phases.get("saving", {}).get("gathered parameters")


@pytest.mark.parametrize(("version", "elements"), [(1, ENDS), (2, 128256 * 4096)])
def test_saving_takes_the_largest_unit_or_parameter(version, elements):
    assert saving(replace(FSDP_1, version=version, state_dict="full")) == 4 * elements


def test_what_is_saved_in_shards_is_not_gathered():
    assert saving(replace(FSDP_1, state_dict="sharded")) is None
    assert saving(replace(FSDP_1, state_dict="full", sharding="none")) is None


def test_stage_3_gathers_on_save_only_where_it_is_told_to():
    for gathers in (True, False):
        plan = layout(engine="deepspeed", world=8, stage=3, gather_on_save=gathers)
        assert ("saving" in account(full(MODEL), plan).phases) == gathers


def test_adapters_on_modulation_make_a_block_keep_what_they_scale():
    plain = lora(FLUX, adapted=tuple(m for m in FLUX.modules if m.path.endswith("attn.to_q")))
    scaled = lora(FLUX, adapted=tuple(m for m in FLUX.modules if m.path.endswith("norm.linear")))
    double, single = FLUX.stacks
    widths = arithmetic(plain, states(), "denoiser")
    assert modulation_saved(plain, single, widths) == 0
    assert modulation_saved(scaled, double, widths) == 0
    assert modulation_saved(scaled, single, widths) == 4 * FLUX.hidden


def test_autocast_keeps_no_copy_of_what_only_time_and_text_pass():
    adapted = tuple(m for m in FLUX.modules if m.path.endswith("attn.to_q"))
    found = count(lora(FLUX, adapted=adapted))
    passed = [m for m in FLUX.modules if m.kind == "linear" and "norm" not in m.path]
    inside = sum(prod(m.shape) + m.bias for m in passed if "{}" in m.path for _ in range(m.copies))
    assert inside <= found.multiplied_frozen < inside * 1.001


def test_a_gelu_that_is_written_out_is_in_fp32_under_autocast():
    plain, cast = (
        arithmetic(lora(GPT_J), states(**BF16_LORA, **how), "text") for how in ({}, AUTOCAST_ALONE)
    )
    stack = GPT_J.stacks[0]
    assert feed_forward_saved(stack, plain) == 4 * 2 * stack.ffn
    assert feed_forward_saved(stack, cast) == (3 * 4 + 2) * stack.ffn


AUTOCAST_ALONE = {"autocast": True}


@pytest.mark.parametrize(("how", "wide"), [({}, True), (AUTOCAST_ALONE, False)])
def test_gpt_j_multiplies_queries_in_fp32_unless_autocast_narrows_them(how, wide):
    widths = arithmetic(lora(GPT_J), states(**BF16_LORA, **how), "text")
    assert widths.eager
    assert widths.wide_queries == wide
    fused = lora(GPT_J, attention=AttentionKernel("flash_attention_2"))
    assert not arithmetic(fused, states(**BF16_LORA, **how), "text").wide_queries


def test_layer_norms_after_make_the_stream_fp32_under_autocast():
    bart, opt = (model({"model_type": name}) for name in ("bart", "opt"))
    narrow = states(**BF16_LORA, **AUTOCAST_ALONE)
    assert arithmetic(lora(bart), narrow, "text").stream == 4
    assert not arithmetic(lora(bart), narrow, "text").casts
    assert arithmetic(lora(opt), narrow, "text").stream == 2


@pytest.mark.parametrize(
    ("dropout", "how", "width"),
    [
        (0.0, BF16_LORA, 0),
        (0.1, BF16_LORA, 4),
        (0.1, BF16_LORA | AUTOCAST_ALONE, 2),
        (0.1, {}, 0),
    ],
)
def test_dora_with_dropout_keeps_its_base_weights_in_what_it_multiplies(dropout, how, width):
    adapted = matching(MODEL, ATTENTION)
    workload = lora(MODEL, dropout=dropout, adapted=adapted)
    workload = replace(workload, adapter=replace(workload.adapter, dora=True))
    elements = sum(prod(m.shape) * m.copies for m in adapted)
    widths = arithmetic(workload, states(**how), "text")
    assert weights_kept(workload, widths, checkpointed=False) == width * elements


def test_a_step_of_paged_moments_brings_those_of_the_widest_table_in_fp32():
    how = {"name": "paged_adamw_8bit", "kernel": "bitsandbytes"}
    found = account(full(MODEL, **how), layout(optimizer="int8")).phases["optimizer step"]
    assert found["paged states of a tensor"] == 2 * 4 * 128256 * 4096


def test_gpt_bigcode_holds_a_mask_of_all_its_positions():
    assert causal_masks(full(model(BIGCODE))) == 8192**2
    assert causal_masks(full(MODEL)) == 0


def test_bert_takes_its_loss_in_the_dtype_of_its_logits():
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    found = account(full(model(config), sequence=512), layout()).phases["loss backward"]
    assert found["logits and loss"] == 3 * 2 * 512 * 30522


@pytest.mark.parametrize(
    ("name", "wide"),
    [("sd3-medium", 4), ("flux.1-dev", 4), ("wan2.1-t2v-1.3b", 4), ("lumina-image-2.0", 2)],
)
def test_packed_products_of_a_denoiser_answer_as_wide_as_its_norms(name, wide):
    packed = replace(lora(model(card(name).config)), quantization=nf4())
    assert arithmetic(packed, states(**AUTOCAST_ALONE), "denoiser").answer == wide
    assert arithmetic(packed, states(), "denoiser").answer == 2


def test_the_mask_between_pictures_grows_with_the_square_of_the_samples():
    seen = {"images": 1, "vision_tokens": 400, "image_tokens": 100}
    workload = full(model(card("lightonocr-2-1b").config), **seen)
    cast, shared = (
        [
            account(workload, layout(micro, **changes)).phases["loss backward"][MASK]
            for micro in (1, 2, 4)
        ]
        for changes in (FP32 | {"autocast": True}, {})
    )
    assert cast == [24 * 2 * (400 * micro) ** 2 for micro in (1, 2, 4)]
    assert shared == [2 * (400 * micro) ** 2 for micro in (1, 2, 4)]


MASK = "mask between pictures"


def test_a_masked_head_keeps_what_its_own_product_reads_and_gives():
    bert, tokens = model(card("bert-base-uncased").config), 2048
    norm = account(full(bert), layout()).phases["loss backward"]["final norm"]
    assert norm == 4 * 2 * bert.hidden * tokens
