"""Evaluation that generates: transformers' own loop on tensors without data against the account."""

from typing import Any

import pytest
from workload_builders import (
    LLAMA_3_8B,
    LLAMA_32_1B,
    MISTRAL_7B,
    full,
    layout,
    lora,
    matching,
    model,
)

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.terms.generation import cache_held
from tunec.compiler.analyses.memory.workload import Generation, Layout, Workload

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.recording.traces import run  # noqa: E402

from tunec.compiler.tracing.comparison import Comparison, compare  # noqa: E402
from tunec.compiler.tracing.subject import Subject  # noqa: E402

LLAMA = LLAMA_32_1B | {"num_hidden_layers": 2, "vocab_size": 8000}
MIXTRAL = LLAMA_3_8B | {
    "model_type": "mixtral",
    "num_hidden_layers": 2,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
MISTRAL = MISTRAL_7B | {"num_hidden_layers": 2, "sliding_window": 256, "head_dim": 128}
T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 1024,
    "d_ff": 4096,
    "d_kv": 64,
    "num_heads": 16,
    "num_layers": 4,
    "num_decoder_layers": 4,
    "vocab_size": 32128,
    "feed_forward_proj": "relu",
    "is_encoder_decoder": True,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
PROMPT, WRITTEN, SAMPLES = 384, 128, 8


def asked(beams: int = 1, *, apart: bool = False) -> Generation:
    read = PROMPT + WRITTEN if apart else PROMPT
    return Generation(read + WRITTEN, beams, by_sample=True, steps=WRITTEN, beams=beams)


def compared(config: dict[str, Any], workload: Workload, plan: Layout) -> Comparison:
    return compare(run(Subject(config, workload, plan)), account(workload, plan))


def errors(found: Comparison) -> dict[str, float]:
    return {each.phase: abs(each.error) for each in found.phases if "evaluation" in each.phase}


@pytest.mark.parametrize(
    ("config", "beams", "states"),
    [
        (LLAMA, 4, {}),
        (MIXTRAL, 1, {}),
        (MISTRAL, 1, {}),
        (T5, 4, {}),
    ],
    ids=["beams", "experts", "window", "encoder"],
)
def test_evaluation_that_generates_takes_what_its_trace_does(
    config: dict[str, Any], beams: int, states: dict[str, Any]
) -> None:
    writing = asked(beams, apart=config is T5)
    given = {"evaluated": writing, "sequence": PROMPT + WRITTEN, "packing": False}
    workload = full(derive(config), **given)
    plan = layout(1, evaluation=SAMPLES, checkpointed=True, **states)
    found = errors(compared(config, workload, plan))
    assert set(found) == {"evaluation", "evaluation prompt", "evaluation answers"}
    assert max(found.values()) < 0.03, found


def test_adapters_work_on_the_prompts_too() -> None:
    architecture = derive(LLAMA)
    linear = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    given = {"evaluated": asked(), "sequence": PROMPT + WRITTEN, "packing": False}
    workload = lora(architecture, adapted=matching(architecture, linear), **given)
    plan = layout(1, evaluation=SAMPLES, checkpointed=True, weights="bf16", trainable="fp32")
    assert max(errors(compared(LLAMA, workload, plan)).values()) < 0.02


def test_what_is_not_asked_for_is_in_no_phase() -> None:
    plan = layout(checkpointed=True)
    assert not [name for name in account(full(model(LLAMA)), plan).phases if "answers" in name]


def test_the_search_takes_fewer_samples_to_evaluate_where_answers_are_long() -> None:
    many = full(model(LLAMA), evaluated=asked(64), sequence=512)
    one = account(many, layout(1, evaluation=1, checkpointed=True)).required_bytes
    eight = account(many, layout(1, evaluation=8, checkpointed=True)).required_bytes
    assert eight > one


def windowed(version: str) -> float:
    workload = full(derive(MISTRAL), versions=(("transformers", version),))
    return cache_held(workload, layout().states, 1000, 100)


def test_a_window_bounds_the_cache_from_the_release_on_that_bounds_it() -> None:
    assert windowed("4.57.6") * 1100 == pytest.approx(windowed("4.51.3") * 256)


def test_the_logits_of_whole_prompts_are_made_before_4_45() -> None:
    plan = layout(checkpointed=True)
    phases = {
        version: account(
            full(model(LLAMA), evaluated=asked(), versions=(("transformers", version),)), plan
        ).phases["evaluation prompt"]
        for version in ("4.44.2", "4.46.3")
    }
    assert phases["4.44.2"]["prompt logits"] == (2 + 4) * 8000 * PROMPT
    assert "prompt logits" not in phases["4.46.3"]
