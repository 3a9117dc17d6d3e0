"""docs/memory-accuracy.md, from the recorded traces and today's account."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from host_memory import page as host_lines
from plan_page import percentile, sweep_lines
from published_page import published_lines
from trace_combinations import subject
from trace_models import BY_NAME
from trace_row import Combination

from tunec.compiler.analyses.memory.account import AHEAD, account, samples
from tunec.compiler.tracing.comparison import phase_of
from tunec.schemas.units import format_bytes

PAGE: Final = Path(__file__).parents[1] / "docs/memory-accuracy.md"
_HEAD: Final = """\
# How accurate the memory account is

Each row is one training step of a real model, built from its own config without weights and run
twice on tensors without data (`tunec trace`): forward, backward and optimizer, every storage
followed. Beside the traced peak stands the account's. What GPUs run where such tensors would take
another path (attention, dropout, autocast, torch's RMSNorm, bitsandbytes' layers, fused optimizers)
is put in by the sizes that those kernels make and keep; `compiler/tracing/live` names the source of
each. ZeRO is DeepSpeed's own code, as are layers (AutoTP, `tensor`) and sequences (`ulysses`) that
ranks share; DDP is torch's, FSDP 1 and 2 torch's as accelerate wraps them, over a process group in
which collectives do nothing. Under ZeRO 1 and 2 ranks differ by gigabytes: in their step, by the
size of the buffer for their own gradients, and by how early in the pass they have it. The trace is
that of the rank which the account finds to need most.
Activations and FSDP's shards on the host are moved by TRL's and torch's own code (`offload`,
`moved`), whose copies there hold nothing; segments and gaps are put into the model's own loop. What
no trace shows: the CUDA context, the allocator's rounding and fragmentation, kernels' workspaces,
DeepSpeed's offload of training state. The account covers these by its margin. Rows with `answers`
go on to evaluate: a batch's loss, its prompts, and the last of the tokens that transformers'
`generate` writes. Rows with `rewarded` are GRPO's, by TRL's own trainer: the loss over answers, the
answers with what `unwrap_model_for_generation` makes whole, their log-probabilities by the
reference and after vLLM, and the walk that hands the weights to vLLM, adapters merged. Rows with
`merged` end with PEFT's `merge_and_unload`.

`just trace-table` traces anew and writes this page and `tests/tracing/data/traced.json`;
`tests/tracing` recomputes a sample and holds every row against the account of the day. Published
measurements on real devices follow the summary.
"""


def accounted(row: Combination) -> int:
    """The account's peak over the phases that a trace has, in bytes."""
    asked = subject(row)
    found = account(asked.workload, asked.layout)
    micro = asked.layout.batch.micro
    lines = (line for line in found.lines if line.name not in AHEAD)
    return max(line.at(micro) for line in lines if row.answers or not line.evaluates)


def error_of(row: dict[str, Any]) -> float:
    """The relative error of today's account: positive if it is above the recorded trace."""
    return accounted(combination_of(row)) / float(row["peak_bytes"]) - 1


def errors_by_phase(row: dict[str, Any]) -> dict[str, float]:
    """The relative error of the account of each phase: positive if it is above the recorded one."""
    asked = subject(combination_of(row))
    found = account(asked.workload, asked.layout)
    lines: dict[str, int] = {}
    for line in found.lines:
        name = phase_of(line)
        lines[name] = max(lines.get(name, 0), line.at(samples(line, asked.layout)))
    return {n: lines[n] / float(size) - 1 for n, size in row["phases"].items() if n in lines}


def combination_of(row: dict[str, Any]) -> Combination:
    """The combination of a recorded row."""
    given = dict(row["combination"])
    return Combination(**{**given, "targets": tuple(given["targets"])})


def class_of(row: dict[str, Any]) -> str:
    """The class of a row: "sharded" with an engine, else the kind of its model."""
    given = row["combination"]
    kind: str = BY_NAME[given["model"]].kind
    return "sharded" if given["engine"] != "none" else kind


def write_page(rows: list[dict[str, Any]]) -> None:
    """Write the page."""
    PAGE.write_text("\n".join(page(rows)) + "\n", "utf-8")


def page(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The page's lines."""
    traced = [row for row in rows if "failed" not in row]
    errors = [(row, error_of(row)) for row in traced]
    yield _HEAD
    yield f"Versions: {_versions(traced)}."
    yield ""
    yield from _summary(errors)
    yield ""
    yield from published_lines()
    yield from host_lines()
    yield from sweep_lines()
    yield "## Against traces"
    yield from _table(errors)
    failed = [row for row in rows if "failed" in row]
    if failed:
        yield from _failures(failed)


def _versions(rows: Iterable[dict[str, Any]]) -> str:
    found = {item for row in rows for item in row["versions"].items()}
    return ", ".join(f"{name} {version}" for name, version in sorted(found))


def _summary(errors: Sequence[tuple[dict[str, Any], float]]) -> Iterator[str]:
    by_class: dict[str, list[float]] = {"all": [abs(error) for _, error in errors]}
    for row, error in errors:
        by_class.setdefault(class_of(row), []).append(abs(error))
    models = {row["combination"]["model"] for row, _ in errors}
    yield f"{len(errors)} combinations over {len(models)} architectures; errors without their sign:"
    yield ""
    yield "| class | rows | median | 95th percentile | largest |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, values in by_class.items():
        figures = median(values), percentile(values, 0.95), max(values)
        shown = " | ".join(f"{100 * each:.2f} %" for each in figures)
        yield f"| {name} | {len(values)} | {shown} |"
    seconds = [float(row["seconds"]) for row, _ in errors]
    yield ""
    yield f"Seconds a trace took: median {median(seconds):.1f}, largest {max(seconds):.1f}."


def _table(errors: Sequence[tuple[dict[str, Any], float]]) -> Iterator[str]:
    model = ""
    for row, error in errors:
        given = combination_of(row)
        if given.model != model:
            model = given.model
            yield from _model_head(model)
        peak = format_bytes(row["peak_bytes"])
        ours = format_bytes(round(row["peak_bytes"] * (1 + error)))
        yield (
            f"| {given.title} | {row['peak_phase']} | {peak} | {ours} | {100 * error:+.2f} % "
            f"| {row['seconds']:.1f} |"
        )


def _model_head(name: str) -> Iterator[str]:
    model = BY_NAME[name]
    cut = f"; cut to {model.layers} layers" if model.layers else ""
    yield ""
    yield f"### {name}"
    yield ""
    yield f"{model.kind}; config of {model.source}{cut}."
    yield ""
    yield "| combination | peak in | traced | account | error | seconds |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"


def _failures(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield ""
    yield "### What could not be traced"
    yield ""
    for row in rows:
        given = combination_of(row)
        yield f"- {given.model}, {given.title}: {row['failed']}"


def worst(rows: Iterable[dict[str, Any]], share: float) -> list[str]:
    """Rows whose error is above a share, worst first, in words."""
    found = [(abs(e), e, row) for row in rows if abs(e := error_of(row)) > share]
    found.sort(key=lambda each: -each[0])
    return [
        f"{r['combination']['model']} {combination_of(r).title}: {100 * e:+.2f} %"
        for _, e, r in found
    ]


if __name__ == "__main__":
    sys.exit("run trace_table.py --render")
