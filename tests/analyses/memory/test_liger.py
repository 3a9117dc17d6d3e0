"""What Liger's layers keep: figures of its own functions, read in the wheels 0.3.1 to 0.8.0."""

from workload_builders import LLAMA_3_8B, QWEN_25_7B, full, layout, lora, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.layers import layer_saved, layer_working, norm_saved
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.frozen import replace

LLAMA = model(LLAMA_3_8B)
STACK = LLAMA.stacks[0]
HIDDEN, INNER = 4096, 14336
NAMED = (("liger-kernel", "0.8.0"),)


def widths(workload: Workload) -> Arithmetic:
    return arithmetic(workload, layout().states, "text")


def test_a_norm_keeps_its_input_and_a_product_gate_and_up() -> None:
    """`LigerRMSNormFunction` saves X, `LigerSiLUMulFunction` a and b; eager ones fp32 and silu too.

    The product itself is what the trained down projection reads; both gradients lie over a and b.
    """
    plain, lean = widths(full(LLAMA)), widths(full(LLAMA, loss="fused", versions=NAMED))
    assert norm_saved(STACK, plain) == (4 + 2) * HIDDEN
    assert norm_saved(STACK, lean) == 2 * HIDDEN
    assert layer_saved(STACK, plain, 1) - layer_saved(STACK, lean, 1) == 8 * HIDDEN + 2 * INNER
    assert layer_working(STACK, plain) - layer_working(STACK, lean) == 2 * INNER


def test_frozen_products_keep_gate_and_up_alone() -> None:
    plain = widths(lora(LLAMA, targets=("q_proj",)))
    lean = widths(lora(LLAMA, targets=("q_proj",), loss="fused", versions=NAMED))
    saved = layer_saved(STACK, plain, 1) - layer_saved(STACK, lean, 1)
    assert saved == 2 * (4 - 2) * HIDDEN + 2 * INNER


def test_it_is_turned_on_by_its_loss_alone_and_named_in_the_software() -> None:
    """fms-acceleration has Liger's loss without its layers: no release is named for it."""
    assert not widths(full(LLAMA, loss="fused")).liger_norms
    assert not widths(full(LLAMA, versions=NAMED)).liger_norms
    own = replace(full(LLAMA, loss="fused", versions=NAMED).architecture, family="qwen3_vl")
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
