"""Every spec for every release of every target: what is refused, and by which words.

python -m tests.releases.sweep
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import Loaded, load_text
from tunec.targets.registry import REGISTRY

_BASE: Final = "tunec: 1\nmodel: {model}\nhardware: {hardware}\nmethod: {method}\ndata: {data}\n"
_TEXTS: Final = "{train: trl-lib/tldr, samples: 20000, sequence: 2048}"


def spec(
    hardware: str, method: str, *more: str, model: str = "qwen2.5-7b", data: str = _TEXTS
) -> str:
    """The text of a spec; `more` are further lines."""
    start = _BASE.format(model=model, hardware=hardware, method=method, data=data)
    return start + "".join(f"{line}\n" for line in more)


_PAIRS: Final = "{train: trl-lib/ultrafeedback_binarized, samples: 20000, sequence: 1024}"
_NVME: Final = (
    "pin: {zero.stage: 3, zero.offload_optimizer: nvme, zero.offload_param: nvme, "
    "zero.nvme_path: /nvme}"
)
_REWARDED: Final = "objective: {grpo: {rewards: [mine.brevity], completion: 512, beta: %s}}"

SPECS: Final[Mapping[str, str]] = {
    "full on one device": spec("a100-80g-x1", "full", model="llama-3.2-1b"),
    "full by DDP": spec("a100-80g-x8", "full", "engine: ddp", model="llama-3.2-1b"),
    "full by ZeRO 1": spec("a100-80g-x8", "full", "pin: {zero.stage: 1}", model="llama-3.2-3b"),
    "full by ZeRO 2": spec("a100-80g-x8", "full", "pin: {zero.stage: 2}", model="llama-3.2-3b"),
    "full by ZeRO 3": spec("a100-80g-x8", "full", "pin: {zero.stage: 3}"),
    "full on the host": spec("a100-80g-x8", "full", "pin: {zero.offload_optimizer: cpu}"),
    "full on NVMe": spec("dgx-a100-80g", "full", _NVME),
    "full by FSDP": spec("a100-80g-x8", "full", "engine: fsdp"),
    "full in fp32": spec("a100-80g-x8", "full", "precision: {compute: fp32}", model="llama-3.2-1b"),
    "full in fp16": spec("v100-32g-x8", "full", model="llama-3.2-1b"),
    "lora": spec("a100-80g-x1", "lora"),
    "lora by ZeRO 2": spec("a100-80g-x8", "lora", "pin: {zero.stage: 2}"),
    "lora by FSDP": spec("a100-80g-x8", "lora", "engine: fsdp"),
    "lora, packed": spec(
        *("a100-80g-x1", "lora"),
        data="{train: trl-lib/tldr, samples: 20000, sequence: 2048, packing: true}",
    ),
    "lora, evaluated": spec(
        *("a100-80g-x1", "lora"),
        data="{train: trl-lib/tldr, evaluation: held-out, samples: 20000, sequence: 2048}",
    ),
    "lora of some modules": spec(
        "a100-80g-x1", "{lora: {rank: 8, targets: [q_proj, v_proj], rslora: true}}"
    ),
    "dora": spec("a100-80g-x1", "{lora: {dora: true}}"),
    "lora on two nodes": spec("dgx-superpod-a100", "lora"),
    "qlora in bf16": spec("rtx-4090-x1", "qlora"),
    "qlora in fp16": spec("t4-x1", "qlora", model="llama-3.2-1b"),
    "qlora by DDP": spec("rtx-4090-x2", "qlora", "engine: ddp"),
    "int8 lora": spec("a100-80g-x1", "int8_lora"),
    "dpo": spec("a100-80g-x8", "lora", "objective: dpo", data=_PAIRS),
    "dpo by qlora": spec(
        "rtx-4090-x1", "qlora", "objective: dpo", model="llama-3.2-3b", data=_PAIRS
    ),
    "dpo of a whole model": spec(
        "a100-80g-x8", "full", "objective: dpo", model="llama-3.2-3b", data=_PAIRS
    ),
    "reward": spec("a100-80g-x8", "lora", "objective: reward", data=_PAIRS),
    "reward by qlora": spec(
        "rtx-4090-x1", "qlora", "objective: reward", model="llama-3.2-3b", data=_PAIRS
    ),
    "reward of a whole model": spec(
        "a100-80g-x8", "full", "objective: reward", model="llama-3.2-3b", data=_PAIRS
    ),
    "grpo": spec("a100-80g-x8", "lora", _REWARDED % 0.0),
    "grpo by qlora": spec("a100-80g-x1", "qlora", _REWARDED % 0.0, model="llama-3.2-3b"),
    "grpo with a reference": spec("a100-80g-x8", "full", _REWARDED % 0.04, model="llama-3.2-3b"),
}


CODES = ("E0901", "E0902", "E0903", "E0904", "E0905")
_NUMBERS = re.compile(r"\(\S+ [\d.a-z]+\) ")


def loaded(name: str) -> Loaded:
    """One of the specs, which is well formed."""
    found = load_text(SPECS[name], targets=REGISTRY.names())
    assert found.spec is not None, (name, found.diagnostics)
    return found


def refusals(name: str, target: str, release: str) -> Iterator[str]:
    """Code and words of each refusal of a target's release, without its number."""
    spec = loaded(name)
    asked = REGISTRY.resolve(f"{target}@{release}", {})
    for each in compile_spec(spec, [asked]).diagnostics:
        if each.id in CODES:
            yield f"{each.id} {_NUMBERS.sub('', each.message)}"


def releases(target: str) -> tuple[str, ...]:
    """The newest release of each minor version that a target knows."""
    return REGISTRY.resolve(target, {})[0].releases


def sweep(
    targets: tuple[str, ...], specs: tuple[str, ...] = tuple(SPECS)
) -> Mapping[str, set[str]]:
    """Where each distinct refusal appears, as `spec: target@release`."""
    found: dict[str, set[str]] = defaultdict(set)
    for target in targets:
        for release in releases(target):
            for name in specs:
                for refusal in refusals(name, target, release):
                    found[refusal].add(f"{name}: {target}@{release}")
    return found


def main() -> int:
    """Print each distinct refusal with its releases."""
    for refusal, places in sorted(sweep(tuple(sys.argv[1:]) or REGISTRY.names()).items()):
        by: dict[str, list[str]] = defaultdict(list)
        for place in sorted(places):
            name, _, at = place.partition(": ")
            by[f"{name}: {at.partition('@')[0]}"].append(at.partition("@")[2])
        print(refusal)
        for name, at in by.items():
            print(f"    {name} ({len(at)}): {', '.join(at[:60])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
