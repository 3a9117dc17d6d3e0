"""Memory of published runs by other estimators and by tunec's account, for docs/guide/why-not.md.

    python benchmarks/estimators.py [--cookbook CLONE] [--write]

Each estimator is the program itself, asked on a CPU for what the run says of itself: accelerate's
`estimate-memory`, DeepSpeed's functions for what ZeRO keeps, and, from a clone of
EleutherAI/cookbook, `calc/calc_transformer_mem.py`. The runs are rows of
`tests/analyses/memory/measured.jsonl`: torch's own count of allocated bytes at the peak.
"""

import argparse
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests/analyses/memory"))
from measurements import Measurement, measurements  # type: ignore[import-not-found]  # noqa: E402
from workload_builders import LLAMA_2_7B, MISTRAL_7B  # type: ignore[import-not-found]  # noqa: E402

PAGE: Final = ROOT / "docs/guide/why-not.md"
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "LLaMA-7B": LLAMA_2_7B,
    "mistralai/Mistral-7B-v0.1": MISTRAL_7B,
}
RUNS: Final = (
    "fmsacc-009",
    "fmsacc-012",
    "fmsacc-033",
    "fmsacc-035",
    "fmsacc-034",
    "zero-004",
    "zero-003",
    "zero-006",
    "zero-010",
    "zero-005",
    "zero-007",
)
STAGES: Final = {"none": 0, "fsdp1_full_shard": 3, "zero2": 2, "zero3": 3}
"""The sharding of each run as a ZeRO stage."""
GIB: Final = 2**30
_TABLE: Final = re.compile(r"(?<=<!-- estimators -->\n).*?(?=<!-- /estimators -->)", re.DOTALL)
_ANSWER: Final = re.compile(r"Per-GPU Memory Required for Training: ([\d.]+) GiB")


class Sizes(NamedTuple):
    """Inputs of the estimators: a model's parameters, those of its largest layer, bytes in fp32."""

    parameters: int
    largest: int
    bytes: int


def sizes(config: dict[str, Any]) -> Sizes:
    """The model's sizes, from its real class without weights, as the programs take them."""
    from accelerate import init_empty_weights
    from accelerate.utils import calculate_maximum_sizes
    from transformers import AutoConfig, AutoModelForCausalLM

    with init_empty_weights():
        found = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    total, _ = calculate_maximum_sizes(found.float())
    each = [sum(p.numel() for p in m.parameters(recurse=False)) for m in found.modules()]
    return Sizes(sum(p.numel() for p in found.parameters()), max(each), int(total))


def accelerate(model: Sizes) -> float:
    """`accelerate estimate-memory`: its column "Training using Adam", in bfloat16."""
    from accelerate.commands.estimate import estimate_training_usage

    return float(max(estimate_training_usage(model.bytes, "bfloat16").values()))


def deepspeed(row: dict[str, Any], model: Sizes) -> float | None:
    """DeepSpeed's estimate of a device's share of the model's states; None without ZeRO."""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

    devices, strategy = row["parallel"]["gpus"], row["parallel"]["strategy"]
    moved = bool(row["parallel"]["offload"])
    if strategy == "zero2":
        return float(zero2(model.parameters, devices, cpu_offload=moved)[1])
    if strategy == "zero3":
        given = (model.parameters, model.largest, devices)
        return float(zero3(*given, cpu_offload=moved, cpu_offload_params=False)[1])
    return None


def cookbook(clone: Path | None, row: dict[str, Any]) -> float | None:
    """EleutherAI's calculator; None without a clone, or if it does not support the method."""
    if clone is None or row["method"] != "full" or row["parallel"]["offload"]:
        return None
    config, strategy = CONFIGS[row["model"]], row["parallel"]["strategy"]
    given = {
        "num-gpus": row["parallel"]["gpus"],
        "zero-stage": STAGES[strategy],
        "batch-size-per-gpu": row["micro_batch"],
        "sequence-length": row["seq_len"],
        "vocab-size": config["vocab_size"],
        "hidden-size": config["hidden_size"],
        "num-attention-heads": config["num_attention_heads"],
        "num-layers": config["num_hidden_layers"],
        "ffn-expansion-factor": config["intermediate_size"] / config["hidden_size"],
        "num-mlp-linears": 3,
        "misc-mem-gib": 0,
    }
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    words += ["--checkpoint-activations"] if row["grad_ckpt"] else []
    program = [sys.executable, str(clone / "calc/calc_transformer_mem.py"), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    answer = _ANSWER.search(done.stdout)
    assert answer, done.stdout
    return float(answer[1]) * GIB


def named(row: dict[str, Any]) -> str:
    """The run in a few words."""
    model = row["model"].rpartition("/")[2].removesuffix("-v0.1")
    strategy = {"none": "", "fsdp1_full_shard": ", FSDP"}.get(row["parallel"]["strategy"])
    strategy = f", ZeRO {row['parallel']['strategy'][-1]}" if strategy is None else strategy
    moved = ", optimizer on the host" if row["parallel"]["offload"] else ""
    kept = "" if row["grad_ckpt"] else ", no checkpointing"
    devices = f"{row['parallel']['gpus']} x {row['gpu']}"
    what = f"{model}, {row['method']}, {row['micro_batch']} x {row['seq_len']}"
    return f"{what} on {devices}{strategy}{moved}{kept}"


def table(clone: Path | None) -> str:
    """The table of all runs in GiB, with the error of each estimate."""
    found = {each.id: each for each in measurements()}
    models = {name: sizes(config) for name, config in CONFIGS.items()}
    rows = [_row(found[name], models[found[name].row["model"]], clone) for name in RUNS]
    head = ("run", "measured", "tunec", "accelerate", "DeepSpeed", "EleutherAI")
    lines = [head, ("---", *("---:" for _ in head[1:])), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _row(measured: Measurement, model: Sizes, clone: Path | None) -> tuple[str, ...]:
    row, truth = measured.row, measured.allocated
    answers = (
        measured.account.peak_bytes,
        accelerate(model),
        deepspeed(row, model),
        cookbook(clone, row),
    )
    return (named(row), f"{truth / GIB:.1f}", *(_cell(each, truth) for each in answers))


def _cell(answer: float | None, truth: int) -> str:
    return "·" if answer is None else f"{answer / GIB:.1f} ({answer / truth - 1:+.0%})"


def versions(clone: Path | None) -> str:
    """The estimators with their versions."""
    names = ("accelerate", "deepspeed", "transformers", "torch")
    said = [f"{name} {version(name)}" for name in names]
    if clone is not None:
        git = ["git", "-C", str(clone), "rev-parse", "--short=8", "HEAD"]
        said.append(f"EleutherAI/cookbook {subprocess.check_output(git, text=True).strip()}")
    return f"Versions: {', '.join(said)}.\n"


def main() -> None:
    """Print the table, or write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cookbook", type=Path, metavar="CLONE", help="of EleutherAI/cookbook")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    text = f"{table(options.cookbook)}\n{versions(options.cookbook)}"
    if options.write:
        PAGE.write_text(_TABLE.sub(lambda _: f"\n{text}\n", PAGE.read_text("utf-8")), "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
