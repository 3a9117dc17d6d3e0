"""Logits by transformers' release, read in its wheels."""

import pytest
from packaging.version import Version
from workload_builders import LLAMA_3_8B, MISTRAL_7B, full, model

from tunec.compiler.analyses.memory.loss import has_own_loss, loss_bytes

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
