"""Host RAM of a real DeepSpeed step with CPU Adam, beside the host account.

    python benchmarks/host_memory.py [-o FILE]

Each case is a process of its own: a Llama of random weights, ZeRO with the optimizer offloaded, two
real steps of DeepSpeed's CPU Adam (compiled when it is first asked for, which takes a C++ compiler
and ninja, but no GPU). The accelerator is the CPU, so that what a GPU would hold lies in the same
RAM: the device's account is added to the host's. Measured is the memory of the process that is
resident, looked at every few milliseconds.

What no CPU shows: pinned buffers, which torch rounds up to powers of two, and CUDA's own libraries.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).parents[1] / "tests/analyses/memory"))


@dataclass(frozen=True, slots=True)
class Case:
    """One run: the size of the model, and the settings of ZeRO."""

    layers: int
    stage: int
    accumulation: int = 1
    sequence: int = 64


CASES: Final = (
    Case(4, 1),
    Case(4, 2),
    Case(12, 2),
    Case(12, 2, accumulation=2),
    Case(4, 3),
    Case(12, 3),
)
_HIDDEN, _FFN, _HEADS, _VOCAB = 1024, 4096, 16, 16384


def config(case: Case) -> dict[str, Any]:
    """The model's config.json."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": _HIDDEN,
        "intermediate_size": _FFN,
        "num_hidden_layers": case.layers,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "vocab_size": _VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    }


def accounted(case: Case) -> dict[str, Any]:
    """The accounts of the host, and of the device, whose memory is the host's here."""
    from workload_builders import (  # type: ignore[import-not-found]
        MIXED,
        full,
        layout,
        model,
    )

    from tunec.compiler.analyses.memory.account import account

    plan = layout(
        engine="deepspeed",
        world=1,
        stage=case.stage,
        offload_optimizer="cpu",
        accumulation=case.accumulation,
        overlap_comm=False,
        reduce_bucket=_HIDDEN * _HIDDEN,
        **MIXED,
    )
    found = account(full(model(config(case)), sequence=case.sequence, kernel="own"), plan)
    return {"host": found.host.phases["training"], "device": found.phases}


DATA: Final = Path(__file__).parents[1] / "tests/analyses/memory/host_memory.jsonl"
_HEAD: Final = """\
## Host RAM of real steps

DeepSpeed's CPU Adam, run with the CPU as the accelerator (`benchmarks/host_memory.py`), so that
what the device would hold lies in the same RAM: bytes a parameter in the second step, beyond a
process that has imported everything, and what both accounts say together.
"""


_REPORTED: Final = """\
Runs that others report (`tests/analyses/memory/host_published.jsonl`), none of which anything is
fitted to: what a node's memory in use grew by, or whether its RAM was enough.
"""


def held(row: dict[str, Any]) -> tuple[int, int]:
    """Measured bytes in the second step, and accounted bytes, without those of the bare process."""
    found = accounted(Case(**row["case"]))
    phases = [sum(terms.values()) for name, terms in found["device"].items() if name != _IDLE]
    host = sum(found["host"].values()) - found["host"]["processes"]
    measured = row["measured"]["second step"] - row["measured"]["imported"]
    return measured, host + max(phases)


_IDLE: Final = "evaluation"


def page() -> Iterator[str]:
    """The section of docs/memory-accuracy.md."""
    found = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    yield _HEAD
    yield "| ZeRO | parameters | accumulation | measured | accounts | error |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in found:
        measured, said = held(row)
        number, case = row["measured"]["parameters"], row["case"]
        error = 100 * (said / measured - 1)
        each = f"{measured / number:.1f} | {said / number:.1f} | {error:+.1f} %"
        yield f"| {case['stage']} | {number / 1e6:.0f} M | {case['accumulation']} | {each} |"
    yield ""
    yield from _reported()


def _reported() -> Iterator[str]:
    """Reports of other users about their hosts."""
    from test_host_published import ROWS, host_of  # type: ignore[import-not-found]

    yield _REPORTED
    yield "| run | model | reported | account |"
    yield "| --- | --- | --- | ---: |"
    for row in ROWS:
        grown = row.get("grown")
        said = f"{grown['bytes'] / 1e9:.0f} GB more in use" if grown else _ended(row)
        ours = f"{host_of(row).peak_bytes / 1e9:.0f} GB"
        yield f"| [{row['id']}]({row['url']}) | {row['model']} {row['method']} | {said} | {ours} |"
    yield ""


def _ended(row: dict[str, Any]) -> str:
    """Whether the RAM of a host was sufficient, in words."""
    return f"{'ran in' if row['ran'] else 'ran out of'} {row['ram'] / 1e9:.0f} GB"


# ── the process that is measured ─────────────────────────────────────────────────────────────────


def resident() -> int:
    """Bytes of this process in RAM."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Highest:
    """The highest resident memory between two moments, sampled every few milliseconds."""

    def __init__(self) -> None:
        self.most, self._on = 0, True
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while self._on:
            self.most = max(self.most, resident())
            time.sleep(0.003)

    def __enter__(self) -> "Highest":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()


def measure(case: Case) -> dict[str, int]:
    """Run two steps; return the number of parameters, and resident memory at several moments."""
    os.environ |= {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "RANK": "0"}
    os.environ |= {"LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "0"}
    import deepspeed
    import torch
    import transformers

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    imported = resident()
    whole = Highest()
    with whole:
        facts = config(case)
        settings = transformers.LlamaConfig(**{k: v for k, v in facts.items() if k != "model_type"})
        settings.use_cache = False
        model = transformers.LlamaForCausalLM(settings).to(torch.bfloat16)
        built = resident()
        engine, *_ = deepspeed.initialize(model=model, config=_ds_config(case))
        del model
        initialized = resident()
        steps = [_step(engine, case) for _ in range(2)]
    return {
        "parameters": sum(p.ds_numel if hasattr(p, "ds_numel") else p.numel()
                          for p in engine.module.parameters()),
        "imported": imported,
        "built": built,
        "initialized": initialized,
        "first step": steps[0],
        "second step": steps[1],
        "highest": whole.most,
    }  # fmt: skip


def _ds_config(case: Case) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": case.accumulation,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {
            "stage": case.stage,
            "offload_optimizer": {"device": "cpu", "pin_memory": False},
            "overlap_comm": False,
            "reduce_bucket_size": _HIDDEN * _HIDDEN,
        },
    }


def _step(engine: Any, case: Case) -> int:
    import torch

    with Highest() as seen:
        for _ in range(case.accumulation):
            tokens = torch.randint(0, _VOCAB, (1, case.sequence))
            engine.backward(engine(input_ids=tokens, labels=tokens).loss)
            engine.step()
    return seen.most


# ── the table ────────────────────────────────────────────────────────────────────────────────────


def rows() -> Iterator[dict[str, Any]]:
    """Each case, measured in a separate process, with its accounts."""
    for case in CASES:
        command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        measured = json.loads(done.stdout.splitlines()[-1])
        yield {"case": asdict(case), "measured": measured, "versions": _versions()}


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("deepspeed", "torch", "transformers")}


def main(show: Callable[[str], Any] = print) -> None:
    """Measure all cases, or only the case of this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--case", type=json.loads)
    asked = parser.parse_args()
    if asked.case is not None:
        show(json.dumps(measure(Case(**asked.case))))
        return
    found = [json.dumps(row) for row in rows()]
    if asked.output:
        asked.output.write_text("\n".join(found) + "\n")
    else:
        show("\n".join(found))


if __name__ == "__main__":
    main()
