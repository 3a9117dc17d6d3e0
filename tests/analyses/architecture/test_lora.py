"""Adapters match, and count, as PEFT's own `get_peft_model` on the real models."""

import hashlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "memory")]
from test_real_models import native_cards
from tests.analyses.architecture.built_models import built
from tests.cards import one_of_each_family, require_tower
from tests.recording.traces import recorded
from workload_builders import BF16_LORA, layout, lora

from tunec.compiler.analyses.architecture import (
    HalfTarget,
    derive,
    is_refused,
    lora_parameters,
    matching,
    takes_no_adapter,
)
from tunec.compiler.analyses.memory.account import account
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.models.catalogue import card

peft = pytest.importorskip("peft")
pytest.importorskip("transformers")

RANK = 4


def small(name: str, **changed: Any) -> Mapping[str, Any]:
    return {**card(name).config, "num_hidden_layers": 3, **changed}


def nested(name: str) -> Mapping[str, Any]:
    config = card(name).config
    text = {**config["text_config"], "num_hidden_layers": 3}
    return {**config, "text_config": text}


MOE = {"num_experts": 4, "num_experts_per_tok": 2}
CASES: tuple[tuple[str, Mapping[str, Any], Any], ...] = (
    ("llama", small("llama-3.2-1b"), ["q_proj", "v_proj"]),
    ("llama, all", small("llama-2-7b"), "all-linear"),
    ("llama, tied head", small("llama-3.2-1b"), ["lm_head", "embed_tokens", "down_proj"]),
    ("llama, regex", small("llama-3.2-1b"), r".*layers\.[02]\.self_attn\.(q|v)_proj"),
    (
        "llama, whole name",
        small("llama-3.2-1b"),
        ["model.layers.1.mlp.up_proj", "self_attn.o_proj"],
    ),
    ("phi-3", small("phi-3-mini"), "all-linear"),
    ("gpt-2", {"model_type": "gpt2", "n_layer": 3}, ["c_attn", "mlp.c_proj"]),
    ("gpt-2, all", {"model_type": "gpt2", "n_layer": 3}, "all-linear"),
    ("bloom", {"model_type": "bloom"}, ["query_key_value"]),
    ("opt", {"model_type": "opt", "word_embed_proj_dim": 512}, "all-linear"),
    ("gemma 3", nested("gemma-3-4b"), ["q_proj", "v_proj"]),
    ("gemma 3, all", nested("gemma-3-4b"), "all-linear"),
    ("llava, all", nested("llava-1.5-7b"), "all-linear"),
    ("qwen vl, all", small("qwen2.5-vl-3b"), "all-linear"),
    ("qwen vl, convolution", small("qwen2.5-vl-3b"), ["patch_embed.proj", "qkv"]),
    ("mllama", nested("llama-3.2-11b-vision"), ["q_proj", "k_proj"]),
    ("t5", {"model_type": "t5"}, ["q", "v"]),
    ("t5, all", {"model_type": "t5"}, "all-linear"),
    ("mixtral", small("mixtral-8x7b", num_hidden_layers=2), ["q_proj", "v_proj"]),
    ("mixtral, experts", small("mixtral-8x7b", num_hidden_layers=2), ["w1", "w2", "w3", "q_proj"]),
    ("mixtral, all", small("mixtral-8x7b", num_hidden_layers=2), "all-linear"),
    ("qwen3 moe, experts", small("qwen3-30b-a3b", **MOE), ["gate_proj", "up_proj", "down_proj"]),
    ("qwen3 moe, all", small("qwen3-30b-a3b", **MOE), "all-linear"),
    ("qwen2 moe, all", {"model_type": "qwen2_moe", "num_hidden_layers": 2, **MOE}, "all-linear"),
    ("deepseek, all", small("deepseek-v2-lite", n_routed_experts=4), "all-linear"),
    ("deepseek", small("deepseek-v2-lite", n_routed_experts=4), ["kv_b_proj", "down_proj"]),
    (
        "deepseek, regex that reaches experts",
        small("deepseek-v2-lite", n_routed_experts=4),
        r".*(self_attn\.o_proj|layers\.0\.mlp\.(gate|up|down)_proj)",
    ),
    ("deepseek, routers", small("deepseek-v2-lite", n_routed_experts=4), r".*mlp\.gate"),
    ("qwen3 moe, regex of attention", small("qwen3-30b-a3b", **MOE), r".*self_attn\.[qkv]_proj"),
    ("sdxl", card("sdxl-base-1.0").config, list(card("sdxl-base-1.0").lora_targets)),
    ("flux", {**card("flux.1-dev").config, "num_layers": 2}, list(card("flux.1-dev").lora_targets)),
    ("sd3, all", {**card("sd3-medium").config, "num_layers": 3}, "all-linear"),
    ("vae", card("sdxl-base-1.0").components[-1].config, ["to_q", "conv1"]),
)


def adapted(model: Any, targets: str | Sequence[str], **options: Any) -> tuple[set[str], int]:
    """Give the names of the modules that PEFT adapts and the parameters that it adds."""
    import torch

    config = peft.LoraConfig(r=RANK, target_modules=targets, **options)
    with torch.device("meta"):
        wrapped = peft.get_peft_model(model, config)
    names: set[str] = set()
    total = 0
    for name, parameter in wrapped.named_parameters():
        if ".lora_" in name:
            total += parameter.numel()
            names.add(re.sub(r"\.lora_.*", "", name).removeprefix("base_model.model."))
    return names, total


def names_of(modules: Sequence[Module]) -> set[str]:
    """Name the modules; a fused parameter by the module that holds it."""
    return {
        name.rpartition(".")[0] if module.kind == "parameter" else name
        for module in modules
        for name in module.names()
    }


def unwrapped(names: set[str]) -> set[str]:
    """PEFT nests a wrapper for each further parameter of one module."""
    return {name.replace(".base_layer", "") for name in names}


@pytest.mark.parametrize(
    ("config", "targets"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_peft_adapts_the_same_modules(config, targets, build):
    architecture = derive(config)
    found = matching(architecture, targets)
    names, total = adapted(build(config, architecture.kind), targets)
    assert names_of(found) == unwrapped(names)
    assert lora_parameters(architecture, found, RANK) == total


def test_peft_leaves_the_same_modules_out(build):
    config = nested("llava-1.5-7b")
    architecture = derive(config)
    exclude = ["out_proj", "fc1", "language_model.layers.1.mlp.up_proj"]
    found = matching(architecture, "all-linear", exclude)
    names, total = adapted(build(config, architecture.kind), "all-linear", exclude_modules=exclude)
    assert names_of(found) == names
    assert lora_parameters(architecture, found, RANK) == total


def test_fused_experts_are_moved_for_the_families_that_peft_moves_them_for():
    from peft.utils.transformers_weight_conversion import (
        _MODEL_TO_CONVERSION_PATTERN,
        _MOE_TARGET_MODULE_MAPPING,
    )
    from transformers.models.auto import modeling_auto

    from tunec.compiler.analyses.architecture.lora import _FUSED_EXPERTS

    with_heads = {
        *modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    }
    real = {
        family: _MOE_TARGET_MODULE_MAPPING[pattern]
        for family, pattern in _MODEL_TO_CONVERSION_PATTERN.items()
        if family in with_heads and pattern in _MOE_TARGET_MODULE_MAPPING
    }
    assert real == _FUSED_EXPERTS


def test_copies_that_match_alone_are_given_alone():
    architecture = derive(card("llama-3.2-1b").config)
    (found,) = matching(architecture, r"model\.layers\.(3|7)\.mlp\.up_proj")
    assert found.copies == 2
    assert list(found.names()) == ["model.layers.3.mlp.up_proj", "model.layers.7.mlp.up_proj"]
    assert found.parameters * 8 == by_path(architecture, found.path).parameters


def by_path(architecture: Architecture, path: str) -> Module:
    return next(module for module in architecture.modules if module.path == path)


def test_nothing_matches_what_is_not_there():
    assert matching(derive(card("llama-3.2-1b").config), ["query_key_value"]) == ()


def test_half_of_what_is_fused_is_refused_as_peft_refuses_it(build):
    config = small("qwen3-30b-a3b", **MOE)
    with pytest.raises(HalfTarget, match="gate_proj needs up_proj among the targets"):
        matching(derive(config), ["gate_proj", "q_proj"])
    with pytest.raises(ValueError, match="without also targeting up_proj"):
        adapted(build(config, "causal-lm"), ["gate_proj", "q_proj"])


def targets_of(name: str) -> str | list[str]:
    """What a plan adapts if its spec does not say: the card's own targets, else all linear.

    Where PEFT refuses some of all, the names of the others.
    """
    found = card(name)
    model = derive(found.config, found.processor)
    inside = [m for m in model.modules if m.kind == "linear" and "{}" in m.path]
    kept = sorted({m.path.rpartition(".")[2] for m in inside if not is_refused(model, m)})
    every = kept if any(is_refused(model, m) for m in inside) else "all-linear"
    return found.lora_pattern or list(found.lora_targets) or every


class Adapters(NamedTuple):
    """What PEFT adapts in a model."""

    layers: dict[str, int]
    """How many modules have a name, by their names without numbers."""
    names: str
    """The digest of all names."""
    parameters: int
    size: int
    """Bytes beside a bf16 base: each adapter is fp32."""


@recorded
def adapters_of_peft(config: Mapping[str, Any], kind: str, targets: str | list[str]) -> Adapters:
    import torch

    model = built(config, kind).to(torch.bfloat16)
    names, total = adapted(model, targets)
    size = sum(p.numel() * p.element_size() for n, p in model.named_parameters() if ".lora_" in n)
    return Adapters(*named(unwrapped(names)), total, size)


def named(names: set[str]) -> tuple[dict[str, int], str]:
    layers = Counter(re.sub(r"\.\d+(?=\.|$)", ".{}", name) for name in names)
    return dict(sorted(layers.items())), hashlib.sha256(repr(sorted(names)).encode()).hexdigest()


@pytest.mark.parametrize("name", one_of_each_family(native_cards()))
def test_every_card_has_as_many_adapters_as_peft_gives_it(name):
    require_tower(name)
    found, targets = card(name), targets_of(name)
    architecture = derive(found.config, found.processor)
    modules = matching(architecture, targets)
    expected = Adapters(
        *named(names_of(modules)),
        lora_parameters(architecture, modules, RANK),
        adapter_bytes(architecture, modules),
    )
    assert adapters_of_peft(found.config, architecture.kind, targets) == expected


def adapter_bytes(architecture: Architecture, modules: Sequence[Module]) -> int:
    workload = lora(architecture, rank=RANK, adapted=tuple(modules), sequence=1)
    return account(workload, layout(**BF16_LORA)).phases["loss forward"]["adapters"]


def test_a_projection_that_a_kernel_reads_itself_takes_no_adapter():
    """PEFT's check names some families alone (`_check_lora_target_modules_mamba`)."""
    for name in ("granite-4.0-h-tiny", "falcon-h1-7b"):
        found = derive(card(name).config)
        unfit = {m.path.rpartition(".")[2] for m in found.modules if takes_no_adapter(found, m)}
        assert "out_proj" in unfit
        assert {"in_proj", "q_proj", "o_proj"}.isdisjoint(unfit)
    from transformers.models.granitemoehybrid import modeling_granitemoehybrid as granite

    assert "outproj_weight=self.out_proj.weight" in inspect.getsource(granite)
