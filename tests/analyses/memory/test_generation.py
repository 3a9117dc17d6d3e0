"""Generation and evaluation: real models on tensors without data against the account."""

import gc
from typing import Any

import pytest
from workload_builders import LLAMA_2_7B, LLAMA_3_8B, LLAMA_32_1B, QWEN_25_7B, full, layout, model

from tunec.compiler.analyses.memory.account import account, samples
from tunec.compiler.analyses.memory.timeline import Phase
from tunec.compiler.analyses.memory.workload import Generation, Layout, Workload

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.recording.traces import recorded  # noqa: E402
from traced_peaks import alive, highest  # noqa: E402

from tunec.compiler.tracing.live.kernels import as_on_gpu, register_attention  # noqa: E402
from tunec.compiler.tracing.live.step import name_model  # noqa: E402
from tunec.compiler.tracing.live.storages import Storages  # noqa: E402

FOUR = {"num_hidden_layers": 4}
MODELS = {
    "llama-3-8b": LLAMA_3_8B | FOUR | {"head_dim": 128},
    "llama-3.2-1b": LLAMA_32_1B | FOUR,
    "qwen2.5-7b": QWEN_25_7B | FOUR | {"head_dim": 128},
    "small vocabulary": LLAMA_2_7B | FOUR | {"head_dim": 128, "vocab_size": 1000},
}
"""Four layers: what comes and goes is one layer's, so that more would hide its error."""
SEQUENCES, PROMPT, TOKENS = 16, 768, 1024


def built(config: dict[str, Any], *, padded: bool) -> Any:
    kinds = {"llama": transformers.LlamaForCausalLM, "qwen2": transformers.Qwen2ForCausalLM}
    kind = kinds[config["model_type"]]
    given = {name: value for name, value in config.items() if name != "model_type"}
    settings = kind.config_class(**given)
    with torch.device("meta"):
        made = kind._from_config(settings, attn_implementation=register_attention(padded=padded))
    return made.to(torch.bfloat16).eval()


def filled_cache(settings: Any, length: int) -> Any:
    """A cache of so many tokens, as earlier steps leave it."""
    cache = transformers.DynamicCache(config=settings)
    shape = SEQUENCES, settings.num_key_value_heads, length, settings.head_dim
    for layer in range(settings.num_hidden_layers if length else 0):
        new = [torch.zeros(shape, dtype=torch.bfloat16, device="meta") for _ in range(2)]
        cache.update(*new, layer)
        del new
    return cache


@recorded
def traced(config: dict[str, Any], *, held: int, new: int) -> int:
    """The most bytes while so many tokens are read beside those in the cache, weights apart.

    As transformers 5.23 `generation/utils.py`, `_sample` does.
    """
    made, storages = built(config, padded=True), Storages()
    with as_on_gpu(), storages, torch.no_grad():
        name_model(storages, made)
        base = alive(storages)
        cache = filled_cache(made.config, held)
        gc.collect()
        storages.begin("reading")
        ids = torch.zeros(SEQUENCES, new, dtype=torch.long, device="meta")
        mask = torch.ones(SEQUENCES, held + new, dtype=torch.long, device="meta")
        given = {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
        logits = made(input_ids=ids, attention_mask=mask, **given).logits
        last = logits[:, -1, :].to(copy=True, dtype=torch.float32)
        torch.nn.functional.softmax(last, dim=-1)
    return highest(storages, "reading") - base


def phase_named(workload: Workload, plan: Layout, name: str) -> Phase:
    return next(line for line in account(workload, plan).lines if line.name == name)


def without_state(line: Phase, plan: Layout) -> int:
    """A phase's bytes without the weights and what the optimizer keeps."""
    kept = ("trained weights", "optimizer states")
    terms = line.terms(samples(line, plan))
    return sum(size for name, size in terms.items() if name not in kept)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("phase", "held", "new"), [("prompt", 0, PROMPT), ("generation", TOKENS - 1, 1)]
)
def test_generation_takes_what_its_trace_does(name: str, phase: str, held: int, new: int) -> None:
    asked = Generation(TOKENS, SEQUENCES, steps=TOKENS - PROMPT)
    workload = full(model(MODELS[name]), generation=asked, sequence=TOKENS)
    plan = layout(checkpointed=True)
    found = without_state(phase_named(workload, plan, phase), plan)
    assert found == pytest.approx(traced(MODELS[name], held=held, new=new), rel=0.015)


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_takes_what_its_trace_does(name: str) -> None:
    """The layers' own work, or the logits and the loss: they are not there together."""
    made, storages = built(MODELS[name], padded=False), Storages()
    with as_on_gpu(), storages, torch.no_grad():
        name_model(storages, made)
        base = alive(storages)
        storages.begin("evaluation")
        ids = torch.zeros(2, 2048, dtype=torch.long, device="meta")
        made(input_ids=ids, labels=ids, use_cache=False)
    workload, plan = full(model(MODELS[name])), layout(2, evaluation=2)
    found = without_state(phase_named(workload, plan, "evaluation"), plan)
    assert found == pytest.approx(highest(storages, "evaluation") - base, rel=0.005)
