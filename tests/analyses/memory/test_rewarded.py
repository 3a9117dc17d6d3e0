"""GRPO and merging: TRL's and PEFT's own code on tensors without data against the account."""

from typing import Any

import pytest
from workload_builders import BF16_LORA, LLAMA_32_1B, MIXED, full, layout, lora, nf4

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.loss import scored
from tunec.compiler.analyses.memory.workload import (
    USUAL_FSDP,
    Generation,
    Layout,
    Preference,
    Workload,
)
from tunec.schemas.frozen import replace
from tunec.schemas.terms import Reference

LLAMA = LLAMA_32_1B | {"num_hidden_layers": 2, "vocab_size": 8000}
ARCHITECTURE = derive(LLAMA)
WRITTEN, TOKENS = 256, 768
AUTOCAST = BF16_LORA | {"autocast": True}


def grpo(reference: Reference, *, vllm: bool = False, gathers: bool = True) -> dict[str, Any]:
    asked = Generation(TOKENS, int(not vllm), gathers=gathers, by_sample=True, steps=WRITTEN)
    return {
        "loss": "chunked",
        "sequence": TOKENS,
        "packing": False,
        "preference": Preference(1, reference, WRITTEN, vllm),
        "generation": asked,
    }


def merging(workload: Workload, where: Any, *, dora: bool = False) -> Workload:
    return replace(workload, adapter=replace(workload.adapter, merge=where, dora=dora))


def errors(workload: Workload, plan: Layout) -> dict[str, float]:
    """By how much each moment beside the step is off."""
    pytest.importorskip("trl")
    from tests.recording.traces import run

    from tunec.compiler.tracing.comparison import compare
    from tunec.compiler.tracing.recording import BESIDE
    from tunec.compiler.tracing.subject import Subject

    found = compare(run(Subject(LLAMA, workload, plan)), account(workload, plan))
    return {each.phase: abs(each.error) for each in found.phases if each.phase in BESIDE}


CASES = {
    "answers alone": (full(ARCHITECTURE, **grpo("none")), {}, {"prompt", "generation"}),
    "a second model": (
        *(full(ARCHITECTURE, **grpo("resident")), {}),
        {"prompt", "generation", "scoring"},
    ),
    "adapters turned off": (
        *(lora(ARCHITECTURE, **grpo("base")), AUTOCAST),
        {"prompt", "generation", "scoring"},
    ),
    "vLLM": (
        *(lora(ARCHITECTURE, **grpo("base", vllm=True)), BF16_LORA),
        {"handing over", "scoring"},
    ),
    "packed": (
        lora(ARCHITECTURE, quantization=nf4(), **grpo("base")),
        AUTOCAST | {"weights": "fp32"},
        {"prompt", "generation", "scoring"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_grpo_does_beside_a_step_takes_what_its_trace_does(name: str) -> None:
    workload, states, phases = CASES[name]
    found = errors(workload, layout(2, accumulation=2, checkpointed=True, **states))
    assert set(found) == phases
    assert max(found.values()) < 0.02, found


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_merging_takes_what_its_trace_does(dora: bool) -> None:
    workload = merging(lora(ARCHITECTURE, sequence=512), "device", dora=dora)
    found = errors(workload, layout(checkpointed=True, **BF16_LORA))
    assert set(found) == {"merging"}
    assert found["merging"] < 0.001


def phases(workload: Workload, **changes: Any) -> dict[str, dict[str, int]]:
    return account(workload, layout(2, accumulation=2, checkpointed=True, **changes)).phases


def test_all_parameters_are_whole_where_adapters_are_merged_for_vllm() -> None:
    adapters = lora(ARCHITECTURE, **grpo("none", vllm=True))
    sharded = {"engine": "deepspeed", "world": 8, "stage": 3, **MIXED}
    whole = phases(adapters, **sharded)["handing over"]["gathered parameters"]
    assert whole >= 2 * ARCHITECTURE.parameters
    trained = full(ARCHITECTURE, **grpo("none", vllm=True))
    assert phases(trained, **sharded)["handing over"]["gathered parameters"] == 2 * 8192 * 2048


def test_a_reference_is_asked_before_the_step() -> None:
    found = phases(lora(ARCHITECTURE, **grpo("base")), **BF16_LORA)
    assert "reference forward" not in found
    assert sum(found["scoring"].values()) < sum(found["loss forward"].values())


def test_the_loss_is_of_the_answer_alone() -> None:
    short, whole = grpo("none"), grpo("none")
    whole["preference"] = Preference(1, "none", TOKENS)
    taken = [
        phases(full(ARCHITECTURE, **each))["loss backward"]["logits and loss"]
        for each in (short, whole)
    ]
    assert taken[0] * TOKENS == pytest.approx(taken[1] * WRITTEN)


@pytest.mark.parametrize(
    ("release", "autocast", "forward", "backward"),
    [
        ("0.27.2", False, 4, 4),
        ("0.27.2", True, 8, 16),
        ("1.3.0", False, 6, 8),
        ("1.9.2", True, 8, 16),
        ("1.13.0", True, 8, 16),
        ("1.14.2", False, 2, 4),
    ],
)
def test_all_logits_of_an_answer_as_traced(
    release: str,
    autocast: bool,
    forward: int,
    backward: int,
) -> None:
    """Bytes an element, by the functions of each release on tensors without data."""
    from packaging.version import Version

    found = scored(2, 1000, Version(release), 512, autocast=autocast)
    assert (found.forward, found.backward) == (forward * 1000, backward * 1000)


def test_a_base_in_host_ram_takes_the_adapters() -> None:
    adapters = merging(lora(ARCHITECTURE, sequence=512), "host")
    found = account(adapters, layout(checkpointed=True, **BF16_LORA)).host.phases["merging"]
    assert found["base to merge into"] == 2 * ARCHITECTURE.parameters
    assert found["merged adapters"] == 2 * 4 * 8192 * 2048
    assert "merging" not in phases(adapters, **BF16_LORA)


def test_a_layer_is_copied_out_of_its_buffer_beside_a_tied_embedding() -> None:
    adapters = lora(ARCHITECTURE, sequence=64, packing=True)
    shards = {"engine": "fsdp", "world": 8, "fsdp": USUAL_FSDP, **AUTOCAST}
    found = account(adapters, layout(checkpointed=True, **shards)).phases
    embedding = 2 * 8000 * 2048
    assert "first gathering" not in found  # the layers are larger than this embedding
    wide = lora(derive(LLAMA | {"vocab_size": 128256}), sequence=64, packing=True)
    first = account(wide, layout(checkpointed=True, **shards)).phases["first gathering"]
    assert first["gather buffer"] > 16 * embedding
