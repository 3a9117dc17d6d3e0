"""Leave one out: what one run on a cluster teaches the time account about its other runs.

A cluster here is a number of devices of one source: the same machine, script and season. From each
published step time alone the factors are worked out as `tunec calibrate` does, and the other step
times of that cluster are judged by them. `--write` renews the table in benchmarks/README.md.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.account import step_time
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.calibrate.attribution import equation as equation_of
from tunec.compiler.calibrate.attribution import factors, off
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.hardware.catalogue import device
from tunec.schemas.hardware.measurements import Ran, Seconds
from tunec.schemas.models.catalogue import card

sys.path.append(str(Path(__file__).parents[1] / "tests/analyses/memory"))
from workload_builders import (  # type: ignore[import-not-found]
    ATTENTION,
    BF16_LORA,
    FSDP_1,
    LLAMA_2_7B,
    LLAMA_32_3B,
    MISTRAL_7B,
    MIXED,
    POWERLM_3B,
    full,
    layout,
    lora,
    model,
    nf4,
)

README: Final = Path(__file__).with_name("README.md")
_START: Final = "<!-- leave one out: begin -->"
_END: Final = "<!-- leave one out: end -->"


class Row(Struct, frozen=True):
    """One published step."""

    cluster: str
    seconds: float
    workload: Workload
    layout: Layout
    machine: Machine


def machine(name: str, devices: int = 1, nodes: int = 1) -> Machine:
    found = device(name)
    return Machine(
        rate=found.rates["bf16"],
        bandwidth=found.bandwidth,
        link=found.link.bandwidth if found.link else found.pcie_bandwidth,
        network=25e9 if nodes > 1 else 0,
        pcie=found.pcie_bandwidth,
        host_bandwidth=4e11,
        nvme_read=0,
        nvme_write=0,
        nodes=nodes,
        per_node=devices,
    )


_GIVEN: Final[dict[str, Any]] = {
    "kernel": "foreach",
    "attention": AttentionKernel("flash_attention_2"),
    "versions": (("transformers", "4.44.2"),),
}


# ── foundation-model-stack/fms-acceleration ──────────────────────────────────────────────────────
# scripts/benchmarks/refs/a100_80gb.csv and a100_80gb_granite.csv at 876e2ed, l40_40gb.csv at
# 8af8fa7; rows without fused kernels, 4096 tokens. Tokens a second of one device.

_QLORA: Final = BF16_LORA | {"autocast": True}
_FMS_STATES: Final[Mapping[str, dict[str, Any]]] = {
    "full": {},
    "lora": BF16_LORA,
    "qlora": _QLORA,
}
_FMS: Final = (
    # model, method, tokens a second on one device with 4 and 8 samples, on two with 2 and 4
    ("mistral", "full", (3062.694, 3143.118), (2777.18, 3008.934)),
    ("mistral", "lora", (3324.155, 3353.809), (2946.306, 3168.613)),
    ("mistral", "qlora", (3595.714, 3662.639), (2948.05, 3392.93)),
    ("powerlm", "full", (5099.488, 5224.047), (4577.647, 4990.665)),
    ("powerlm", "lora", (5033.196, 5105.963), (3989.872, 4782.835)),
    ("powerlm", "qlora", (5540.308, 5665.515), (3790.845, 4992.436)),
    ("mixtral", "lora", (), (1571.223, 1834.376)),
    ("mixtral", "qlora", (1965.107, 2105.612), (1589.191, 1877.912)),
    ("llama 70b", "qlora", (464.362,), (432.434,)),
)
_L40: Final = (("lora", 4, 2724.3), ("lora", 8, 2715.7), ("qlora", 4, 2517.0), ("qlora", 8, 2521.8))


def _fms_model(name: str) -> Any:
    if name == "mistral":
        return model(MISTRAL_7B)
    if name == "powerlm":
        return model(POWERLM_3B)
    named = {"mixtral": "mixtral-8x7b-v0.1", "llama 70b": "llama-2-70b"}
    return model(dict(card(named[name]).config))


def _fms_workload(name: str, method: str) -> Workload:
    given = {**_GIVEN, "sequence": 4096}
    if method == "full":
        return full(_fms_model(name), **given)  # type: ignore[no-any-return]
    more = {"quantization": nf4()} if method == "qlora" else {}
    return lora(_fms_model(name), targets=ATTENTION, **more, **given)  # type: ignore[no-any-return]


def _of_fms() -> Iterator[Row]:
    one, two = machine("a100-sxm4-80g"), machine("a100-sxm4-80g", 2)
    for name, method, alone, both in _FMS:
        workload, states = _fms_workload(name, method), _FMS_STATES[method]
        for micro, tokens in zip((4, 8), alone, strict=False):
            plan = layout(micro, checkpointed=True, **states)
            yield Row("fms-acceleration, 1 A100", micro * 4096 / tokens, workload, plan, one)
        for micro, tokens in zip((2, 4), both, strict=False):
            plan = layout(micro, checkpointed=True, engine="fsdp", world=2, fsdp=FSDP_1, **states)
            yield Row("fms-acceleration, 2 A100", micro * 4096 / tokens, workload, plan, two)
    for method, micro, tokens in _L40:
        plan = layout(micro, checkpointed=True, **_FMS_STATES[method])
        workload = _fms_workload("mistral", method)
        yield Row("fms-acceleration, 1 L40", micro * 4096 / tokens, workload, plan, machine("l40"))


# ── QwenLM/Qwen ──────────────────────────────────────────────────────────────────────────────────
# README.md at 2df8e8ac450f, "Profiling of Memory and Speed": seconds of a step of 8 accumulated
# samples; LoRA (emb) also trains embedding and output layer. Rows of GPTQ are left out: no plan is
# made for it. finetune/*.sh of the same commit name the engines.

_LENGTHS: Final = (256, 512, 1024, 2048, 4096, 8192)
_QWEN: Final[tuple[tuple[str, str, str, dict[str, Any], int, int, tuple[float, ...]], ...]] = (
    # cluster, model, method, engine, devices of a node, nodes, seconds by length
    ("1 A100", "1.8B", "lora", {}, 1, 1, (1.0, 1.0, 1.1, 1.7, 3.3, 6.8)),
    ("1 A100", "1.8B", "emb", {}, 1, 1, (1.0, 1.0, 1.1, 1.8, 3.4, 7.0)),
    ("1 A100", "1.8B", "full", {}, 1, 1, (2.1, 2.2, 2.2, 2.3, 2.8, 5.6)),
    ("1 A100", "7B", "lora", {}, 1, 1, (1.2, 1.5, 2.8, 5.2, 10.1, 21.3)),
    ("1 A100", "7B", "emb", {}, 1, 1, (1.4, 1.6, 2.9, 5.3, 10.3, 21.7)),
    ("1 A100", "14B", "lora", {}, 1, 1, (1.6, 2.4, 4.4, 8.4, 17.0, 36.0)),
    ("1 A100", "14B", "emb", {}, 1, 1, (1.7, 2.6, 4.6, 8.6, 17.2, 36.3)),
    ("2 A100", "7B", "full", {"stage": 3}, 2, 1, (4.0, 4.0, 4.5)),
    ("2 nodes of 2 A100", "7B", "lora", {"stage": 2}, 2, 2, (2.09, 3.16, 5.17, 9.25, 18.1, 37.4)),
    ("4 A100", "72B", "lora", {"stage": 3}, 4, 1, (17.6, 20.5, 29.4, 45.7, 83.4, 161.5)),
)
_QWEN_SHAPES: Final = {
    "1.8B": (2048, 5504, 24, 16, 151936),
    "7B": (4096, 11008, 32, 32, 151936),
    "14B": (5120, 13696, 40, 40, 152064),
    "72B": (8192, 24576, 80, 64, 152064),
}
_QWEN_TARGETS: Final = ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""As many adapters as c_attn, c_proj, w1, w2 and the second c_proj."""


def _qwen_model(name: str) -> Any:
    """Llama's layers, with the three attention projections in one."""
    hidden, between, layers, heads, words = _QWEN_SHAPES[name]
    shape = {
        "hidden_size": hidden,
        "intermediate_size": between,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "vocab_size": words,
    }
    return model(LLAMA_2_7B | shape)


def _qwen_workload(name: str, method: str, sequence: int) -> Workload:
    known, given = _qwen_model(name), {**_GIVEN, "sequence": sequence}
    if method == "full":
        return full(known, **given)  # type: ignore[no-any-return]
    words = tuple(m for m in known.modules if "embed" in m.path or "lm_head" in m.path)
    also = {"also_train": words} if method == "emb" else {}
    return lora(  # type: ignore[no-any-return]
        known, rank=64, dropout=0.05, targets=_QWEN_TARGETS, **also, **given
    )


def _of_qwen() -> Iterator[Row]:
    for cluster, name, method, engine, devices, nodes, times in _QWEN:
        states = MIXED if method == "full" else _QLORA
        world = devices * nodes
        sharded = {"engine": "deepspeed", "world": world, **engine} if engine else {}
        plan = layout(1, checkpointed=True, accumulation=8, nodes=nodes, **states, **sharded)
        on = machine("a100-sxm4-80g", devices, nodes)
        for sequence, seconds in zip(_LENGTHS, times, strict=False):
            workload = _qwen_workload(name, method, sequence)
            yield Row(f"Qwen, {cluster}", seconds, workload, plan, on)


# ── huggingface/peft ─────────────────────────────────────────────────────────────────────────────
# method_comparison/MetaMathQA/results, 2026-07: Llama 3.2 3B, 4 samples a step, one L40S; tokens a
# second are of 210 tokens a sample on average; seconds of a step without evaluation. Rows whose
# adapters the account counts: 5d602fdbf.

_PEFT: Final = (
    # rank, modules, seconds
    (0, (), 0.36259),
    (10, ("up_proj", "gate_proj", "down_proj"), 0.13309),
    (32, ("q_proj", "v_proj"), 0.11704),
    (64, ("q_proj", "v_proj"), 0.1189),
    (64, ("q_proj", "v_proj"), 0.11917),
)


def _of_peft() -> Iterator[Row]:
    known, given = model(LLAMA_32_3B), {"sequence": 210, "kernel": "foreach"}
    for rank, targets, seconds in _PEFT:
        workload = (
            lora(known, rank=rank, targets=targets, **given) if rank else full(known, **given)
        )
        plan = layout(4, **(BF16_LORA if rank else {}))
        yield Row("peft, 1 L40S", seconds, workload, plan, machine("l40s"))


def rows() -> tuple[Row, ...]:
    """Every row, by cluster."""
    return (*_of_fms(), *_of_qwen(), *_of_peft())


# ── leave one out ────────────────────────────────────────────────────────────────────────────────


def _ran(row: Row) -> Ran:
    terms = step_time(row.workload, row.layout, row.machine).terms
    found = Seconds(measured=row.seconds, steps=1, accounted=terms)
    devices = row.layout.parallel.world
    about = {"name": row.cluster, "when": "", "files": (), "digest": "", "tunec": ""}
    return Ran.model_validate({**about, "devices": devices, "seconds": found})


def judged(runs: Sequence[Ran]) -> tuple[list[float], list[float]]:
    """Errors of every other run of a cluster, without factors and by those of one run alone."""
    before, after = [], []
    for teacher in runs:
        learnt = factors([teacher])
        for other in runs:
            if other is not teacher and other.seconds is not None:
                equation = equation_of(other.seconds.accounted, other.seconds.measured)
                before.append(abs(off(equation, {})))
                after.append(abs(off(equation, learnt)))
    return before, after


def table() -> list[str]:
    by_cluster: dict[str, list[Ran]] = {}
    for row in rows():
        by_cluster.setdefault(row.cluster, []).append(_ran(row))
    lines = [
        "| cluster | runs | error of the account | after one other run | halved |",
        "| --- | ---: | ---: | ---: | :---: |",
    ]
    every: list[tuple[int, list[float], list[float]]] = []
    for name, runs in by_cluster.items():
        every.append((len(runs), *judged(runs)))
        lines.append(_line(name, *every[-1]))
    far = [each for each in every if median(each[1]) > _FAR]
    means = ([fmean(median(each[at]) for each in far)] for at in (1, 2))  # type: ignore[arg-type]
    number = sum(runs for runs, _, _ in far)
    lines.append(_line(f"mean of the {len(far)} that are off by more than {_FAR}", number, *means))
    return lines


_FAR: Final = 0.1


def _line(name: str, runs: int, before: Sequence[float], after: Sequence[float]) -> str:
    first, second = median(before), median(after)
    halved = "yes" if second <= first / 2 else "no"
    return f"| {name} | {runs} | {first:.3f} | {second:.3f} | {halved} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python benchmarks/calibrate.py")
    parser.add_argument("--write", action="store_true", help="renew the table in the README")
    options = parser.parse_args()
    lines = table()
    print("\n".join(lines))
    if options.write:
        head, _, rest = README.read_text().partition(_START)
        _, _, tail = rest.partition(_END)
        README.write_text("\n".join([f"{head}{_START}", "", *lines, "", f"{_END}{tail}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
