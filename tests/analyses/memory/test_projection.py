"""Losses that take the head's product in pieces, against traces of the code that does it."""

from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version
from workload_builders import LLAMA_3_8B, full, layout, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.loss import LossBytes, chunked, fused, loss_bytes
from tunec.compiler.analyses.memory.workload import Loss

LLAMA = model(LLAMA_3_8B)


@pytest.mark.parametrize(("loss", "share"), [("fused", 0.05), ("chunked", 0.03)])
def test_they_hold_no_logits(loss: Loss, share: float) -> None:
    whole = loss_bytes(full(LLAMA), 2, head_trained=False, autocast=False)
    found = loss_bytes(full(LLAMA, loss=loss), 2, head_trained=False, autocast=False)
    assert found.forward < share * whole.forward
    assert found.backward < share * whole.backward


# Bytes alive beyond hidden states and head, traced with the function of each wheel
# (`_chunked_cross_entropy_loss` of trl 1.4.0 and 1.14.2) on 1025 tokens in bf16.
CHUNKED = [
    ("1.14.2", 1024, 4096, False, 18_900_280, 20_997_408),
    ("1.14.2", 1024, 4096, True, 18_900_280, 29_909_012),
    ("1.14.2", 4096, 4096, True, 25_191_736, 119_562_260),
    ("1.14.2", 4096, 8192, False, 41_968_952, 50_357_536),
    ("1.14.2", 4096, 8192, True, 41_968_952, 220_225_556),
    ("1.14.2", 1024, 16384, True, 69_231_928, 105_406_484),
    ("1.4.0", 1024, 4096, False, 24_134_696, 33_571_872),
    ("1.4.0", 1024, 4096, True, 24_134_696, 52_446_228),
    ("1.4.0", 4096, 4096, False, 83_903_528, 96_486_432),
    ("1.4.0", 4096, 8192, False, 155_206_696, 176_178_208),
    ("1.4.0", 4096, 8192, True, 155_206_696, 369_116_180),
    ("1.4.0", 1024, 16384, True, 87_049_256, 190_858_260),
]


@pytest.mark.parametrize(("trl", "hidden", "vocab", "trained", "forward", "backward"), CHUNKED)
def test_trl_in_chunks(
    trl: str, hidden: int, vocab: int, trained: bool, forward: int, backward: int
) -> None:
    found = chunked(hidden, vocab, Version(trl), head_trained=trained, casts=False, short=False)
    assert whole(found, 1024) == (
        pytest.approx(forward, rel=0.05),
        pytest.approx(backward, rel=0.05),
    )


def whole(found: LossBytes, tokens: int) -> tuple[float, float]:
    """All bytes of the forward and of the backward pass."""
    forward = found.fixed + found.forward * tokens
    return forward, found.fixed_backward + found.backward * tokens


@pytest.mark.parametrize("trained", [False, True])
def test_trl_in_tiles(monkeypatch: pytest.MonkeyPatch, trained: bool) -> None:
    """The real kernel's tensors; what Triton does in place is left out, as on a device."""
    torch = pytest.importorskip("torch")
    kernel = pytest.importorskip("trl.kernels.chunked_logprob")
    from traced_peaks import alive, following, highest

    in_place: Any = SimpleNamespace(cdiv=lambda a, b: -(-a // b))
    monkeypatch.setattr(kernel, "triton", in_place, raising=False)
    monkeypatch.setattr(kernel, "_use_triton", lambda _: True)
    monkeypatch.setattr(kernel, "_addmm_fp32", lambda *_: None)
    for name in ("_forward_kernel", "_backward_kernel"):
        monkeypatch.setattr(kernel, name, Launched())
    tokens, hidden, vocab = 4096, 256, 65536
    weight = torch.zeros(vocab, hidden, dtype=torch.bfloat16, requires_grad=trained)
    states = torch.zeros(tokens, hidden, dtype=torch.bfloat16, requires_grad=True) * 1.0
    labels = torch.zeros(tokens, dtype=torch.long)
    with following((weight, states, labels)) as storages:
        before = alive(storages)
        storages.begin("forward")
        log_probs = kernel.ChunkedLogProbFunction.apply(
            states.clone(), weight, None, labels, 1.0, 32768, None, 1.0, ("log_probs",)
        )[0]
        loss = -log_probs.sum()
        storages.begin("backward")
        loss.backward()
    forward, backward = (highest(storages, name) - before for name in ("forward", "backward"))
    found = chunked(hidden, vocab, None, head_trained=trained, casts=False, short=False)
    assert whole(found, tokens) == (
        pytest.approx(forward, rel=0.002),
        pytest.approx(backward, rel=0.002),
    )


class Launched:
    """A kernel that is launched on a grid and allocates nothing."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None


def test_only_sums_of_another_dtype_are_copied() -> None:
    """TRL sums gradients in fp32 and converts them to the weight's dtype (`.to`)."""
    hidden, vocab = LLAMA.hidden, LLAMA.vocab
    options = {"head_trained": True, "short": True}
    narrow, wide, casting = (
        chunked(hidden, vocab, None, width=width, casts=casts, **options).fixed_backward
        for width, casts in ((2, False), (4, False), (2, True))
    )
    assert (narrow, wide) == (6 * vocab * hidden, 4 * vocab * hidden)
    assert casting == wide + 2 * 2 * 32768 * hidden


def test_liger_by_release() -> None:
    """Allocations in `fused_linear_cross_entropy_forward` of the wheels 0.4.2, 0.5.10, 0.8.0."""
    hidden, vocab = LLAMA.hidden, LLAMA.vocab
    old, middle, new = (
        fused(hidden, vocab, version, head_trained=True)
        for version in (Version("0.4.2"), Version("0.5.10"), None)
    )
    assert (old.forward, middle.forward, new.forward) == (14 * hidden, 6 * hidden, 6 * hidden)
    assert (old.fixed, new.fixed) == (2 * vocab * hidden, 8 * vocab * hidden)
    assert old.fixed_backward == new.fixed_backward == 2 * vocab * hidden


def test_the_release_decides_how_pieces_are_taken() -> None:
    """TRL's three generations in an account."""
    peaks = [
        account(
            full(LLAMA, loss="chunked", versions=(("trl", trl),)), layout(checkpointed=True)
        ).phases["loss backward"]["loss buffers"]
        for trl in ("1.8.0", "1.14.2", "1.16.0")
    ]
    assert peaks[0] > 1.5 * peaks[1] > peaks[2]
