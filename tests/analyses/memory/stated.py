"""Accounts of published runs whose rows state all settings themselves.

`model` names a config below or a card of the catalogue. `states`, `layout` and `data` hold fields
of the slots by their own names, where they differ from the simplest of `workload_builders`;
`keeps_logits`: whether the run's own loop holds the model's output while it differentiates the
loss, which the Trainer lets go of.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

from workload_builders import (
    ALL_LINEAR,
    ATTENTION,
    FSDP_1,
    LLAMA_2_7B,
    LLAMA_32_1B,
    LLAMA_32_3B,
    MISTRAL_7B,
    NO_FSDP,
    NOT_QUANTISED,
    QWEN_25_7B,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.phase import Phase, group
from tunec.compiler.analyses.memory.workload import Layout, Preference, Workload
from tunec.compiler.ir.slots import AttentionKernel, Quantization
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.catalogue import card

Row = dict[str, Any]

SMOLLM2 = LLAMA_2_7B | {"vocab_size": 49152, "tie_word_embeddings": True}
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "deepseek-ai/deepseek-coder-1.3b-instruct": LLAMA_2_7B
    | {
        "hidden_size": 2048,
        "intermediate_size": 5504,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": 32256,
    },
    "HuggingFaceTB/SmolLM2-135M": SMOLLM2
    | {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "HuggingFaceTB/SmolLM2-360M": SMOLLM2
    | {
        "hidden_size": 960,
        "intermediate_size": 2560,
        "num_attention_heads": 15,
        "num_key_value_heads": 5,
    },
    "HuggingFaceTB/SmolLM2-1.7B": SMOLLM2
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24},
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": LLAMA_2_7B
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
    },
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN_25_7B
    | {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen1.5-7B": QWEN_25_7B
    | {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 151936,
    },
    "Qwen/Qwen2.5-7B-Instruct": QWEN_25_7B,
    "mistralai/Mistral-7B-Instruct-v0.3": MISTRAL_7B | {"vocab_size": 32768},
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA_32_1B,
    "meta-llama/Llama-3.2-3B-Instruct": LLAMA_32_3B,
}
"""Each model's config.json on the Hugging Face hub."""
ALSO: Final = {"Qwen/Qwen2.5-Coder-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct"}
"""Models with the config of another."""
TARGETS: Final = {"all-linear": ALL_LINEAR, "attention": ATTENTION}
QUANTIZATIONS: Final[dict[str, Callable[[], Quantization]]] = {
    "nf4": lambda: nf4(double=False),
    "nf4-double": nf4,
    "nf4-double-in-bf16": lambda: replace(nf4(), storage="bf16"),
    "int8": lambda: Quantization("int8", False, "bf16", None),
}


@cache
def architecture_of(name: str) -> Architecture:
    """A model by the name that its row gives."""
    known = CONFIGS.get(ALSO.get(name, name))
    return model(known if known is not None else dict(card(name).config))


def stated_account(row: Row) -> Account:
    """The account of a row's own settings."""
    found = account(workload_of(row), layout_of(row))
    return keeping_logits(found) if row.get("keeps_logits") else found


def workload_of(row: Row) -> Workload:
    """What a row trains, and on what."""
    architecture = architecture_of(row["model"])
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "attention": AttentionKernel(row["attn"]),
        "versions": tuple(row["versions"].items()),
        **row.get("data", {}),
    }
    if "preference" in row:
        given["preference"] = Preference(2, row["preference"])
    if row["method"] == "full":
        return full(architecture, **given)
    packed = row["quant"] and replace(QUANTIZATIONS[row["quant"]](), compute=given["compute"])
    asked = row["peft"]
    targets = TARGETS.get(asked["targets"], tuple(asked["targets"].split(",")))
    adapted = tuple(m for m in architecture.modules if m.path.endswith(targets))
    given |= {"rank": asked["r"], "dropout": asked["dropout"], "adapted": adapted}
    return lora(architecture, quantization=packed or NOT_QUANTISED, **given)


def layout_of(row: Row) -> Layout:
    """How a row's devices share the work."""
    asked = dict(row.get("layout", {}))
    fsdp = replace(FSDP_1, **asked.pop("fsdp")) if "fsdp" in asked else NO_FSDP
    return layout(
        row["micro_batch"],
        checkpointed=row["grad_ckpt"],
        accumulation=row["gas"],
        fsdp=fsdp,
        **row["states"],
        **asked,
    )


def keeping_logits(found: Account) -> Account:
    """The same where the caller holds the logits until the next step."""
    states, workload = found.layout.states, found.workload
    width = BYTES[workload.precision.compute if states.autocast else states.weights]
    tokens = workload.data.sequence
    logits = group({"kept logits": width * tokens * workload.architecture.vocab})
    lines = tuple(_with(line, logits) if _is_late(line) else line for line in found.lines)
    micro = found.layout.batch.micro
    peak = max((line for line in lines if not line.evaluates), key=lambda line: line.at(micro))
    return replace(found, lines=lines, peak=peak, peak_bytes=peak.at(micro))


def _is_late(line: Phase) -> bool:
    return "backward" in line.name or "reduction" in line.name or "step" in line.name


def _with(line: Phase, more: Any) -> Phase:
    more_bytes = line.sample_bytes + more.total
    return line._replace(per_sample=(*line.per_sample, more), sample_bytes=more_bytes)
