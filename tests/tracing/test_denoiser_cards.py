"""Derived cards of diffusion transformers, held against traces at sizes they were not fitted to."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from tests.recording.traces import recorded, run  # noqa: E402
from workload_builders import BF16_LORA, full, layout, lora  # noqa: E402

from tunec.compiler.analyses.architecture import derive  # noqa: E402
from tunec.compiler.analyses.memory.account import account  # noqa: E402
from tunec.compiler.analyses.memory.diffusion import denoiser_tokens  # noqa: E402
from tunec.compiler.tracing.comparison import compare  # noqa: E402
from tunec.compiler.tracing.derivation import derived  # noqa: E402
from tunec.compiler.tracing.live.denoiser_sample import Given, Grid, Traits  # noqa: E402
from tunec.compiler.tracing.live.denoiser_values import answered  # noqa: E402
from tunec.compiler.tracing.live.derivation import denoiser_measures  # noqa: E402
from tunec.compiler.tracing.live.derivation.denoiser_measures import (  # noqa: E402
    GRIDS,
    MORE_GRIDS,
)
from tunec.compiler.tracing.live.derivation.planes import Irregular, fitted  # noqa: E402
from tunec.compiler.tracing.live.step import first_tensor  # noqa: E402
from tunec.compiler.tracing.subject import Subject, Untraceable  # noqa: E402
from tunec.schemas.frozen import replace  # noqa: E402
from tunec.schemas.models.denoiser import highest  # noqa: E402
from tunec.schemas.models.derived_card import DerivedCard, card_name  # noqa: E402

CONFIGS = {
    # two streams, then one
    "flux2": {
        "_class_name": "Flux2Transformer2DModel",
        "num_layers": 3,
        "num_single_layers": 8,
        "attention_head_dim": 64,
        "num_attention_heads": 12,
        "joint_attention_dim": 1536,
        "in_channels": 128,
        "guidance_embeds": False,
        "axes_dims_rope": [16, 16, 16, 16],
    },
    # two streams, without single blocks
    "qwen-image": {
        "_class_name": "QwenImageTransformer2DModel",
        "num_layers": 12,
        "attention_head_dim": 64,
        "num_attention_heads": 12,
        "joint_attention_dim": 1536,
        "axes_dims_rope": [8, 28, 28],
    },
    # attention to the text
    "wan": {
        "_class_name": "WanTransformer3DModel",
        "num_layers": 12,
        "attention_head_dim": 64,
        "num_attention_heads": 12,
        "ffn_dim": 3072,
        "text_dim": 1536,
    },
    # linear attention, and convolutions over the picture
    "sana": {
        "_class_name": "SanaTransformer2DModel",
        "num_layers": 12,
        "num_attention_heads": 24,
        "num_cross_attention_heads": 12,
        "cross_attention_head_dim": 64,
        "cross_attention_dim": 768,
        "caption_channels": 1536,
    },
    # refiners of tokens that nothing recomputes, ahead of the others
    "lumina2": {
        "_class_name": "Lumina2Transformer2DModel",
        "hidden_size": 768,
        "num_layers": 12,
        "num_attention_heads": 8,
        "num_kv_heads": 4,
        "cap_feat_dim": 1024,
    },
}
QUERIES = ("to_q", "to_k", "to_v", "to_out.{}")


@recorded
def card_of(name: str) -> str:
    """A card in 16 bit without autocast, which the plans below compute in."""
    ways = [way for way in denoiser_measures.WAYS if way.held.itemsize == 2]
    plain = tuple(way for way in ways if not way.autocast and not way.packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoiser_measures, "WAYS", plain)
        return derived(CONFIGS[name]).to_json().decode()


@pytest.fixture(scope="module")
def cards():
    return {name: DerivedCard.of_json(card_of(name).encode()) for name in CONFIGS}


def workloads(model):
    adapted = tuple(m for m in model.modules if m.path.endswith(QUERIES) and "{}" in m.path)
    # 3,072 tokens of most, which no measure was made of
    options = {"sequence": 0, "packing": False, "image_width": 1024, "image_height": 768}
    yield full(model, **options), layout(1)
    yield full(model, **options), layout(3)
    yield lora(model, adapted=adapted, **options), layout(2, **BF16_LORA)
    yield lora(model, adapted=adapted, **options), layout(4, checkpointed=True, **BF16_LORA)


@pytest.mark.parametrize("which", range(4), ids=["alone", "full", "lora", "recomputed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_account_is_as_traced(cards, name, which):
    workload, plan = [*workloads(cards[name].architecture)][which]
    trace = run(Subject(CONFIGS[name], workload, plan))
    assert -0.015 < compare(trace, account(workload, plan)).error < 0.06


@pytest.mark.parametrize(("samples", "recomputed"), [(2, False), (4, True)])
def test_an_adapter_on_a_projection_of_queries_to_feed_forward_is_counted(
    cards, samples, recomputed
):
    model, names = cards["flux2"].architecture, (*QUERIES, "to_qkv_mlp_proj")
    adapted = tuple(m for m in model.modules if m.path.endswith(names) and "{}" in m.path)
    picture = {"sequence": 0, "packing": False, "image_width": 1024, "image_height": 768}
    workload = lora(model, adapted=adapted, **picture)
    plan = layout(samples, checkpointed=recomputed, **BF16_LORA)
    trace = run(Subject(CONFIGS["flux2"], workload, plan))
    assert -0.015 < compare(trace, account(workload, plan)).error < 0.06


def test_masks_that_hold_values_meet_tensors_that_hold_none():
    given = Given(SimpleNamespace(), Grid(1, 2, 4, 3), 1, torch.bfloat16, (1, 1, 1))
    mask, plain = torch.tensor([True, False, True]), torch.where
    with answered(given, Traits()):
        chosen = torch.where(mask, torch.zeros(3, device="meta"), 1.0)
        longer = torch.zeros(1, 3, device="meta").repeat_interleave(mask * 3 + 1, dim=1)
        assert chosen.is_meta
        assert longer.shape == (1, 9)
        assert len(range(9)[: torch.zeros((), dtype=torch.int, device="meta")]) == 9
    assert torch.where is plain


def test_pictures_that_a_class_gives_as_a_list_are_one_prediction():
    one, two = torch.zeros(3, 4), torch.ones(3, 4)
    assert first_tensor(([one, two],)).shape == (2, 3, 4)
    assert first_tensor((one, two)) is one


def test_an_autoencoder_of_more_channels_makes_coarser_elements():
    small = {**CONFIGS["wan"], "num_layers": 3, "in_channels": 48, "out_channels": 48}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoiser_measures, "WAYS", denoiser_measures.WAYS[:1])
        assert derived(small).architecture.latent_scale == 16


def test_kinds_of_blocks_are_told_apart(cards):
    double, single = cards["flux2"].architecture.stacks
    assert (double.layers, single.layers) == (3, 8)
    assert {double.joint, single.joint} == {"double"}
    assert [each.joint for each in cards["wan"].architecture.stacks] == ["none"]


def test_tokens_of_a_picture_follow_the_autoencoder_and_the_patch(cards):
    sides = {
        name: card.architecture.latent_scale * card.architecture.latent_patch
        for name, card in cards.items()
    }
    assert sides.pop("sana") == 32
    assert set(sides.values()) == {16}


def test_blocks_are_told_by_what_becomes_of_them_where_others_are_recomputed(cards):
    model = cards["lumina2"].architecture
    kept = dict(zip(model.denoiser.lists, (each.is_kept for each in model.stacks), strict=True))
    assert kept == {"noise_refiner": True, "context_refiner": True, "layers": False}


def test_a_picture_that_is_no_square_is_filled_up_where_the_class_does_so(cards):
    model = cards["wan"].architecture
    filling = replace(model, denoiser=replace(model.denoiser, oblong=4096))
    wide, square = (
        {"sequence": 0, "packing": False, "image_width": 1024, "image_height": high}
        for high in (512, 512 * 2)
    )
    assert denoiser_tokens(full(filling, **wide)) == denoiser_tokens(full(filling, **square))
    assert denoiser_tokens(full(model, **wide)) < denoiser_tokens(full(model, **square))


def test_products_know_how_many_rows_they_multiply(cards):
    rows = cards["qwen-image"].architecture.denoiser.rows
    of = {
        name.removeprefix("transformer_blocks.{}."): each.at(4096, 1024)
        for name, each in rows.items()
    }
    assert (of["attn.to_q"], of["attn.add_q_proj"], of["img_mod.{}"]) == (4096, 1024, 1)


def test_modules_are_those_of_the_familys_rule():
    config = {
        "_class_name": "FluxTransformer2DModel",
        "num_layers": 2,
        "num_single_layers": 3,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "in_channels": 64,
        "patch_size": 1,
        "guidance_embeds": True,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(denoiser_measures, "WAYS", denoiser_measures.WAYS[:1])
        found = derived(config).architecture
    said = derive(config)

    def facts(model):
        return {(name, m.kind, m.shape, m.bias) for m in model.modules for name in m.names()}

    assert facts(found) == facts(said)
    side = found.latent_scale * found.latent_patch
    assert side == said.latent_scale * said.latent_patch


def test_a_card_is_read_as_it_was_written(cards):
    for card in cards.values():
        again = DerivedCard.of_json(card.to_json())
        assert again.architecture == card.architecture
        assert card.release.startswith("diffusers ")
        assert card_name(card.config).startswith(card.family)


def test_planes_hold_at_sizes_that_they_were_not_fitted_to():
    plain = {g: 100.0 + 6 * g.image + 4 * g.text for g in GRIDS}
    assert highest(fitted(plain, "kept"), 5000, 50) == pytest.approx(30300)
    masks = {g: 8.0 * g.image + 2 * g.text**2 for g in GRIDS}
    assert highest(fitted(masks, "kept"), 4096, 512) == pytest.approx(8 * 4096 + 2 * 512**2)


def test_moments_that_take_turns_by_the_size_are_planes_too():
    def most(grid):
        large = 50.0 * grid.image + 30 * grid.text
        return max(large, 20.0 * grid.image + 10 * grid.text + 90_000)

    found = fitted({grid: most(grid) for grid in MORE_GRIDS}, "kept")
    assert len(found) == 2
    for grid in (Grid(1, 64, 64, 512), Grid(1, 40, 44, 100)):
        assert highest(found, grid.image, grid.text) == pytest.approx(most(grid), rel=1e-3)


def test_bytes_without_a_plane_are_refused():
    with pytest.raises(Irregular, match="are no plane"):
        fitted({Grid(1, g.rows, g.columns, g.text): float(g.image % 97) for g in GRIDS}, "kept")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"_class_name": "NoSuchTransformer2DModel"}, "has no class 'NoSuchTransformer2DModel'"),
        ({"_class_name": "FluxTransformer2DModel", "num_layers": "many"}, "cannot be built"),
        ({"_class_name": "RFD4ProteinaTransformer"}, "takes bb_ca, which is not known"),
    ],
)
def test_what_cannot_be_derived_is_told(config, reason):
    with pytest.raises(Untraceable, match=reason):
        derived(config)
