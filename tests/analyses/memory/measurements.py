"""Published measurements with the workload and the layout that each was taken of.

`measured.jsonl` holds one measurement a line, with repository, commit and path. `metric`:
`allocated` (torch's max_memory_allocated), `reserved` (max_memory_reserved) or `driver`
(nvidia-smi or a README's figure); `driver` beside `allocated` is nvidia-smi's of the same run;
`oom`: the run ended for want of memory (`held`, and `asked` for then); `ran`: it did not.
`reading_split` says which readings the bound on readings is fitted to (every second one of each
source) and which ones judge it, `verdict_split` which failures FSDP's share of fragmentation is
fitted to; nothing is fitted to allocated bytes. Rows that failed with fused kernels are here
because they would fail without them too.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, Final

from published_models import GEMMA_7B, MT0_XXL, T0_3B
from stated_runs import stated_account
from workload_builders import (
    ALL_LINEAR,
    ATTENTION,
    BF16_LORA,
    FP32,
    FSDP_1,
    LLAMA_2_7B,
    LLAMA_3_8B,
    LLAMA_32_3B,
    MISTRAL_7B,
    MIXED,
    NOT_QUANTISED,
    POWERLM_3B,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.account import Account, account, samples
from tunec.compiler.analyses.memory.timeline import At, Term, timeline
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.models.catalogue import card

Row = dict[str, Any]
FLASH: Final = AttentionKernel("flash_attention_2")
DATA: Final = Path(__file__).with_name("measured.jsonl")
UNUSABLE: Final = Path(__file__).with_name("unusable.json")
"""Published rows that no account can be compared with, by reason."""


@dataclass(frozen=True)
class Measurement:
    """One published run."""

    row: Row

    @property
    def id(self) -> str:
        """As the corpus names it."""
        return str(self.row["id"])

    @property
    def allocated(self) -> int | None:
        """Bytes of tensors at the peak."""
        return self.row["bytes"] if self.row["metric"] == "allocated" else None

    @property
    def reading(self) -> int | None:
        """Bytes that the allocator or the driver had taken at most."""
        if self.row["metric"] in ("reserved", "driver"):
            return int(self.row["bytes"])
        return self.row.get("driver")

    @property
    def is_fitted(self) -> bool:
        """Whether the bound on readings may look at it."""
        return self.row.get("reading_split") == "fit"

    @property
    def judges_verdict(self) -> bool:
        """Whether no share of the requirement was fitted to how the run ended."""
        return self.row.get("verdict_split") != "fit"

    @property
    def ran_out(self) -> bool:
        """Whether the run ended for want of memory."""
        return bool(self.row["metric"] == "oom")

    @property
    def account(self) -> Account:
        """What the compiler says of it."""
        return BUILDERS[self.row["builder"]](self.row)


@cache
def measurements() -> tuple[Measurement, ...]:
    """All of them, in the order of the file."""
    return tuple(Measurement(json.loads(line)) for line in DATA.read_text().splitlines())


def unfolded(names: Iterable[str]) -> Iterator[str]:
    """Every row of names in which `a-002..005` stands for four."""
    for name in names:
        source, _, numbers = name.rpartition("-")
        first, _, last = numbers.partition("..")
        yield from (f"{source}-{n:03d}" for n in range(int(first), int(last or first) + 1))


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest of the values that at least a share of them do not exceed."""
    ordered = sorted(values)
    return ordered[ceil(share * len(ordered)) - 1]


MIXTRAL_8X7B = MISTRAL_7B | {
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
LLAMA_2_70B = LLAMA_2_7B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}

# requirements.txt, requirements_granite.txt and requirements_liger.txt beside the tables. The rows
# of santacoder are left out: two of its four need 8.3 and 18.7 bytes a logit, which its code does
# not explain.
FMS: dict[str, tuple[Architecture, str]] = {
    "mistralai/Mistral-7B-v0.1": (model(MISTRAL_7B), "4.48.1"),
    "ibm/PowerLM-3b": (model(POWERLM_3B), "4.45.0"),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": (model(MIXTRAL_8X7B), "4.48.1"),
    "NousResearch/Llama-2-70b-hf": (model(LLAMA_2_70B), "4.48.1"),
    "meta-llama/Meta-Llama-3-8B": (model(LLAMA_3_8B), "4.45.2"),
}


def fms_account(row: Row) -> Account:
    """fms-acceleration on A100s; its Triton kernels take less than transformers' own modules."""
    architecture, version = FMS[row["model"]]
    version = row.get("transformers", version)
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "kernel": "foreach",
        "attention": FLASH,
        "versions": (("transformers", version),),
        "loss": "fused" if "liger" in row.get("kernels", "") else "full",
    }
    if row["method"] == "full":
        workload = full(architecture, **given)
    else:
        given["quantization"] = nf4() if row["quant"] else NOT_QUANTISED
        workload = lora(architecture, rank=16, dropout=0.1, targets=ATTENTION, **given)
    plan = layout(row["micro_batch"], checkpointed=True, **_fms_engine(row), **_fms_states(row))
    found = account(workload, _reentrant(plan))
    narrows = row.get("kbit_prep") and row["parallel"]["gpus"] == 1
    return _narrow_ends(found) if narrows and row.get("autocast") != "fp16" else found


def _narrow_ends(known: Account) -> Account:
    """The account with an embedding and a head of 16 bits below fp32 norms.

    TRL's trainer made 16 bits of both again, so that autocast copied no head, and the first layer
    read 16 bits (trl 0.9.6, 0.10.1 and 0.13.0 `trainer/utils.py`, `peft_module_casting_to_bf16`,
    which `SFTTrainer` calls after `prepare_model_for_kbit_training` if training is in bf16, unless
    FSDP shards the base).
    """
    model, tokens = known.workload.architecture, known.workload.data.sequence
    ends, copied = 1 if model.tied else 2, 1
    weights = -2 * (ends + copied) * model.vocab * model.hidden
    scaled = model.family == "granite"
    read = -2 * (1 + scaled) * tokens * model.hidden
    terms = (
        Term("16-bit ends", weights, At.FORWARD, At.EVALUATION),
        Term("16-bit embedding", read, At.LOSS_FORWARD, At.LOSS_BACKWARD, by_sample=True),
    )
    lines = timeline((*known.lines[0].course, *terms))
    sizes = [line.at(samples(line, known.layout)) for line in lines]
    most = max(sizes)
    return replace(known, lines=lines, peak=lines[sizes.index(most)], peak_bytes=most)


def _reentrant(plan: Layout) -> Layout:
    """As transformers recomputes unless it is told otherwise, until 4.57."""
    again = replace(plan.activation_checkpointing, reentrant=True)
    return replace(plan, activation_checkpointing=again)


def _fms_engine(row: Row) -> dict[str, Any]:
    ranks = row["parallel"]["gpus"]
    # scripts/benchmarks/accelerate.yaml: fsdp_cpu_ram_efficient_loading: true
    fsdp = replace(FSDP_1, efficient_loading=True)
    return {"engine": "fsdp", "world": ranks, "fsdp": fsdp} if ranks > 1 else {}


def _fms_states(row: Row) -> dict[str, Any]:
    """Full fine-tuning under FSDP with autocast steps fp32 shards: 20 bytes an element."""
    sharded = row["parallel"]["gpus"] > 1
    if row["method"] == "full":
        return FP32 | {"autocast": True} if sharded and row.get("autocast") else {}
    states: dict[str, Any] = dict(BF16_LORA)
    states["autocast"] = bool(row["quant"])
    if row.get("kbit_prep") and not sharded:
        states["weights"] = "fp32"
    return states


LLAMA_2_13B = LLAMA_2_7B | {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
}
STABLELM_ALPHA_3B = {
    "model_type": "gpt_neox",
    "hidden_size": 4096,
    "intermediate_size": 16384,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "vocab_size": 50688,
    "tie_word_embeddings": False,
}
FALCON_7B = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "vocab_size": 65024,
    "multi_query": True,
    "parallel_attn": True,
    "new_decoder_architecture": False,
    "bias": False,
    "alibi": False,
}
LITGPT = {
    "falcon-7b": model(FALCON_7B),
    "gemma-7b": model(GEMMA_7B),
    "gemma2-9b": model(dict(card("gemma-2-9b").config)),
    "llama-3-8b": model(LLAMA_3_8B),
    "llama-3.1-8b": model(LLAMA_3_8B),
    "mistral-7b": model(MISTRAL_7B),
    "llama 2 7b": model(LLAMA_2_7B),
    "llama-2-7b": model(LLAMA_2_7B),
    "llama 2 13b": model(LLAMA_2_13B),
    "stablelm alpha 3b": model(STABLELM_ALPHA_3B),
    "stablelm-base-alpha-3b": model(STABLELM_ALPHA_3B),
}


def litgpt_account(row: Row) -> Account:
    """LitGPT's LoRA in pure bf16; every batch padded to the longest."""
    few = row["peft"]["targets"] == "query,value"
    workload = lora(
        LITGPT[row["model"].lower()],
        rank=row["peft"]["r"],
        dropout=0.05,
        targets=("q_proj", "v_proj", "query_key_value") if few else ALL_LINEAR,
        sequence=row["seq_len"],
        packing=False,
        kernel="foreach",
    )
    return account(workload, layout(row["micro_batch"], checkpointed=row["grad_ckpt"]))


PEFT_README = {"bigscience/T0_3B": T0_3B, "bigscience/mt0-xxl": MT0_XXL}


def peft_readme_account(row: Row) -> Account:
    """peft's examples/conditional_generation in fp32: texts of 64 tokens, eight at a time."""
    architecture = model(PEFT_README[row["model"]])
    given: dict[str, Any] = {"sequence": 64, "packing": False, "kernel": "foreach"}
    if row["method"] == "full":
        return account(full(architecture, **given), layout(row["micro_batch"], **FP32))
    workload = lora(architecture, rank=8, dropout=0.1, targets=("q", "v"), **given)
    return account(workload, layout(row["micro_batch"], **FP32))


def zero_account(row: Row) -> Account:
    """LLaMA-7B on eight A800, with the bucket sizes of transformers' `auto`."""
    moved = row["parallel"]["offload"] or ""
    workload = full(
        model(LLAMA_2_7B), sequence=row["seq_len"], versions=(("transformers", "4.48.1"),)
    )
    plan = layout(
        row["micro_batch"],
        checkpointed=row["grad_ckpt"],
        accumulation=row["gas"],
        engine="deepspeed",
        world=8,
        stage=int(row["parallel"]["strategy"][4]),
        offload_optimizer="cpu" if "optimizer" in moved else "none",
        offload_param="cpu" if "param" in moved else "none",
        reduce_bucket=4096**2,
        prefetch_bucket=int(0.9 * 4096**2),
        persistence_threshold=40960,
        **MIXED,
    )
    return account(workload, plan)


YI_6B = LLAMA_2_7B | {"num_key_value_heads": 4, "vocab_size": 64000}
YI_34B = YI_6B | {
    "hidden_size": 7168,
    "intermediate_size": 20480,
    "num_hidden_layers": 60,
    "num_attention_heads": 56,
    "num_key_value_heads": 8,
}
QWEN = {
    "1.8B": {"hidden_size": 2048, "intermediate_size": 5504, "heads": 16, "layers": 24},
    "7B": {"hidden_size": 4096, "intermediate_size": 11008, "heads": 32, "layers": 32},
    "14B": {"hidden_size": 5120, "intermediate_size": 13696, "heads": 40, "layers": 40},
    "72B": {"hidden_size": 8192, "intermediate_size": 24576, "heads": 64, "layers": 80},
}
"""Qwen/Qwen-*, config.json; half of its `intermediate_size`, since w1 and w2 share it."""


@cache
def qwen(name: str) -> Architecture:
    """A model of the first generation: Llama's layers, one projection in place of three."""
    wanted = name.lower().replace("_", ".").removesuffix("-chat").removeprefix("qwen-")
    sizes = dict(QWEN[wanted.upper()])
    heads, layers = sizes.pop("heads"), sizes.pop("layers")
    vocabulary = 152064 if sizes["hidden_size"] > 4096 else 151936
    more = {"num_attention_heads": heads, "num_key_value_heads": heads}
    found = model(
        LLAMA_2_7B | sizes | more | {"num_hidden_layers": layers, "vocab_size": vocabulary}
    )
    # its own code keeps no table of positions in a layer
    return replace(found, context=0, modules=tuple(_joined(found.modules)))


def _joined(modules: Iterable[Module]) -> Iterator[Module]:
    """Queries, keys and values in one projection (finetune.py, `lora_target_modules`: c_attn)."""
    for module in modules:
        name = module.path.rpartition(".")[2]
        if name == "q_proj":
            rows, columns = module.shape
            path = module.path.replace(name, "c_attn")
            yield replace(module, path=path, shape=(3 * rows, columns))
        elif name not in ("k_proj", "v_proj"):
            yield module


SINGLE = {"autocast": True, **BF16_LORA}


def qwen_account(row: Row) -> Account:
    """What finetune/*.sh of QwenLM/Qwen start."""
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "attention": FLASH,
        "versions": (("transformers", "4.45.0"),),
    }
    architecture = qwen(row["model"])
    sharded = {"engine": "deepspeed", "reduce_bucket": architecture.hidden**2, **MIXED}
    ranks = row["parallel"]["gpus"]
    if row["method"] == "full":
        plan = layout(checkpointed=True, accumulation=8, world=ranks, stage=3, **sharded)
        return account(full(architecture, **given), plan)
    ends = "embeddings" in row["peft"]["targets"]
    outer = (architecture.embedding, architecture.head)
    beside = tuple(module for module in architecture.modules if module.path in outer)
    given["targets"] = ("c_attn", *ALL_LINEAR)
    workload = lora(architecture, rank=64, dropout=0.05, also_train=beside if ends else (), **given)
    states: dict[str, Any] = SINGLE
    if ranks > 1:
        stage = int(row["parallel"]["strategy"][4])
        states = {"world": ranks, "stage": stage, "overlap_comm": True, **sharded}
    return account(workload, layout(checkpointed=True, accumulation=8, **states))


def swift_account(row: Row) -> Account:
    """ms-swift with torch 2.1: texts of 3234 tokens on average, cut to length."""
    yi = {"yi-6b-chat": YI_6B, "yi-34b-chat": YI_34B}
    name = row["model"]
    architecture = model(yi[name]) if name in yi else qwen(name)
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "attention": AttentionKernel(row["attn"]),
        "kernel": "foreach",
        "packing": False,
        "versions": (("transformers", "4.36.0"),),
    }
    micro, checkpointed = row["micro_batch"], row["grad_ckpt"]
    if row["method"] == "full":
        return account(full(architecture, **given), layout(micro, checkpointed=checkpointed))
    everything = row["peft"]["targets"] == "ALL"
    targets = ("c_attn", *(ALL_LINEAR if everything else ("q_proj", "k_proj", "v_proj")))
    workload = lora(architecture, rank=row["peft"]["r"], dropout=0.05, targets=targets, **given)
    return account(workload, layout(micro, checkpointed=checkpointed, **SINGLE))


def peft_account(row: Row) -> Account:
    """peft's own comparison of methods on one L40S, with its newest releases."""
    targets = tuple(row["peft"]["targets"].split(","))
    workload = lora(
        model(LLAMA_32_3B),
        rank=row["peft"]["r"],
        targets=targets,
        sequence=row["seq_len"],
        packing=False,
        kernel="foreach",
    )
    workload = replace(workload, adapter=replace(workload.adapter, dora=row["dora"]))
    return account(workload, layout(row["micro_batch"], **BF16_LORA))


FSDP_QLORA = {
    "meta-llama/Llama-2-7b-hf": model(LLAMA_2_7B),
    "meta-llama/Llama-2-70b-hf": model(LLAMA_2_70B),
    "01-ai/Yi-34B": model(YI_34B),
    "mistralai/Mistral-7B-v0.2": model(MISTRAL_7B | {"sliding_window": None}),
}


def fsdp_qlora_account(row: Row) -> Account:
    """Answer.AI's train.py at 049515f: everything in bf16, adapters too; layers recomputed by FSDP.

    Of a day on which transformers 4.38 was the newest; peft then took the base's dtype.
    """
    quantised = row["method"] == "qlora"
    workload = lora(
        FSDP_QLORA[row["model"]],
        rank=64,
        dropout=0.1,
        targets=[name for name in ALL_LINEAR if name != "o_proj"],
        quantization=replace(nf4(), storage="bf16") if quantised else NOT_QUANTISED,
        sequence=row["seq_len"],
        kernel="foreach",
        versions=(("transformers", "4.38.2"),),
    )
    shards = replace(
        FSDP_1,
        sharding="none" if row["parallel"]["strategy"] == "fsdp1_no_shard" else "full",
        offload_params=row["parallel"]["offload"] is not None,
        use_orig_params=False,
        checkpointing=True,
        efficient_loading=True,  # its own loader, of `low_memory`
    )
    ranks = row["parallel"]["gpus"]
    plan = layout(row["micro_batch"], checkpointed=True, engine="fsdp", world=ranks, fsdp=shards)
    return account(workload, _reentrant(plan))


UNSLOTH = {"8B": model(LLAMA_3_8B), "70B": model(LLAMA_2_70B | {"vocab_size": 128256})}


def unsloth_account(row: Row) -> Account:
    """What Unsloth compares itself with: transformers, peft's k-bit preparation, 8-bit AdamW.

    The longest sequences that fitted. Optimizer and preparation are those of its notebooks; the
    table does not name them.
    """
    workload = lora(
        UNSLOTH["70B" if "70B" in row["model"] else "8B"],
        rank=32,
        quantization=nf4(),
        sequence=row["seq_len"],
        attention=FLASH,
        name="adamw_8bit",
        kernel="bitsandbytes",
        versions=(("transformers", "4.44.2"),),
    )
    states = SINGLE | {"weights": "fp32", "optimizer": "int8"}
    return account(workload, _reentrant(layout(row["micro_batch"], checkpointed=True, **states)))


BUILDERS: Final[dict[str, Callable[[Row], Account]]] = {
    "fms": fms_account,
    "fms-before": fms_account,
    "zero": zero_account,
    "qwen": qwen_account,
    "swift": swift_account,
    "peft": peft_account,
    "peft-readme": peft_readme_account,
    "litgpt": litgpt_account,
    "fsdp-qlora": fsdp_qlora_account,
    "unsloth": unsloth_account,
    "stated": stated_account,
}
