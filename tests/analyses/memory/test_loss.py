"""Logits by transformers' release, and what Liger's layers keep, as their wheels have it."""

import pytest
from packaging.version import Version
from workload_builders import LLAMA_3_8B, MISTRAL_7B, QWEN_25_7B, full, layout, lora, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.layers import layer_saved, layer_working, norm_saved
from tunec.compiler.analyses.memory.loss import has_own_loss, loss_bytes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.frozen import replace

LLAMA = model(LLAMA_3_8B)
SANTACODER = model(
    {"model_type": "gpt_bigcode", "n_embd": 2048, "n_layer": 24, "n_head": 16, "n_inner": 8192}
    | {"multi_query": True, "vocab_size": 49280, "n_positions": 2048}
)


def bytes_an_element(version: str, architecture: object = LLAMA, **changes: bool) -> float:
    workload = full(architecture, versions=(("transformers", version),))  # type: ignore[arg-type]
    options = {"head_trained": True, "autocast": False} | changes
    return loss_bytes(workload, 2, **options).forward / workload.architecture.vocab


@pytest.mark.parametrize(
    ("version", "forward"),
    [
        ("4.40.2", 12),
        ("4.45.2", 12),
        ("4.46.0", 14),
        ("4.48.1", 14),
        ("4.49.0", 10),
        ("5.23.0", 10),
    ],
)
def test_forward_of_llama(version: str, forward: int) -> None:
    assert bytes_an_element(version) == forward


def test_mistral_joined_two_releases_later() -> None:
    mistral = model(MISTRAL_7B)
    assert [bytes_an_element(v, mistral) for v in ("4.46.3", "4.47.1", "4.48.1")] == [12, 12, 14]


def test_some_families_never_left_16_bit() -> None:
    assert bytes_an_element("4.45.0", SANTACODER) == 6
    assert bytes_an_element("4.45.0", SANTACODER, autocast=True) == 12


def test_an_unknown_version_is_the_newest() -> None:
    assert not has_own_loss("llama", None)
    assert has_own_loss("llama", Version("4.45"))
    assert has_own_loss("chatglm", None)


def test_backward_is_three_fp32_tensors() -> None:
    workload = full(LLAMA)
    found = loss_bytes(workload, 2, head_trained=True, autocast=False)
    assert found.backward == 12 * workload.architecture.vocab


LARGE = model(LLAMA_3_8B)
STACK = LARGE.stacks[0]
HIDDEN, INNER = 4096, 14336
NAMED = (("liger-kernel", "0.8.0"),)


def widths(workload: Workload) -> Arithmetic:
    return arithmetic(workload, layout().states, "text")


def test_a_norm_keeps_its_input_and_a_product_gate_and_up() -> None:
    """`LigerRMSNormFunction` saves X, `LigerSiLUMulFunction` a and b; eager ones fp32 and silu too.

    The product itself is what the trained down projection reads; both gradients lie over a and b.
    """
    plain, lean = (
        widths(full(LARGE)),
        widths(full(LARGE, loss="fused", versions=NAMED)),
    )
    assert norm_saved(STACK, plain) == (4 + 2) * HIDDEN
    assert norm_saved(STACK, lean) == 2 * HIDDEN
    assert layer_saved(STACK, plain, 1) - layer_saved(STACK, lean, 1) == 8 * HIDDEN + 2 * INNER
    assert layer_working(STACK, plain) - layer_working(STACK, lean) == 2 * INNER


def test_frozen_products_keep_gate_and_up_alone() -> None:
    plain = widths(lora(LARGE, targets=("q_proj",)))
    lean = widths(lora(LARGE, targets=("q_proj",), loss="fused", versions=NAMED))
    saved = layer_saved(STACK, plain, 1) - layer_saved(STACK, lean, 1)
    assert saved == 2 * (4 - 2) * HIDDEN + 2 * INNER


def test_it_is_turned_on_by_its_loss_alone_and_named_in_the_software() -> None:
    """fms-acceleration has Liger's loss without its layers: no release is named for it."""
    assert not widths(full(LARGE, loss="fused")).liger_norms
    assert not widths(full(LARGE, versions=NAMED)).liger_norms
    own = replace(full(LARGE, loss="fused", versions=NAMED).architecture, family="qwen3_vl")
    found = widths(full(own, loss="fused", versions=NAMED))
    assert found.liger_norms
    assert not found.liger_products


def test_no_plan_needs_more_with_it() -> None:
    for config in (LLAMA_3_8B, QWEN_25_7B):
        for checkpointed in (True, False):
            plan = layout(8, checkpointed=checkpointed)
            with_it = account(full(model(config), loss="fused", versions=NAMED), plan)
            without = account(full(model(config), loss="fused"), plan)
            assert with_it.peak_bytes < without.peak_bytes
