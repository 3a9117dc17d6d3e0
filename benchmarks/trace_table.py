"""Trace every combination and write the table of account against trace.

Each trace runs in a child of its own: that bounds the memory, and DeepSpeed keeps its process
groups in module globals. `--resume` keeps rows that are there.
"""

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict
from trace_combinations import combinations, subject
from trace_row import Combination

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.tracing.comparison import compare

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT / "tests/tracing/data/traced.json"


def main() -> None:
    """Trace the requested combinations and write the data and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="keep rows that are recorded")
    parser.add_argument("--only", default="", help="trace rows whose model and title hold this")
    parser.add_argument("--render", action="store_true", help="only account and write anew")
    parser.add_argument("-j", type=int, default=1, help="traces at once")
    options = parser.parse_args()
    if not options.render:
        known = _known(refused=bool(options.only)) if options.resume or options.only else {}
        DATA.parent.mkdir(parents=True, exist_ok=True)
        DATA.write_text(_as_text(_trace_all(options.j, known, options.only)), "utf-8")
    from trace_page import accounted, combination_of, write_page

    found = json.loads(DATA.read_text("utf-8"))
    for row in found:
        if "failed" not in row:
            row["accounted_bytes"] = accounted(combination_of(row))
            row["error"] = row["accounted_bytes"] / row["peak_bytes"] - 1
    DATA.write_text(_as_text(found), "utf-8")
    write_page(found)


def _as_text(rows: list[dict[str, Any]]) -> str:
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    return f"[\n{lines}\n]\n"


def key_of(combination: dict[str, Any]) -> str:
    """A text that identifies a combination."""
    whole = asdict(Combination(combination["model"])) | combination
    return json.dumps(whole, sort_keys=True, default=list)


def _known(*, refused: bool) -> dict[str, dict[str, Any]]:
    """The recorded rows by key, with or without those that could not be traced."""
    if not DATA.exists():
        return {}
    rows = json.loads(DATA.read_text("utf-8"))
    return {key_of(row["combination"]): row for row in rows if refused or "failed" not in row}


def _trace_all(jobs: int, known: dict[str, dict[str, Any]], only: str) -> list[dict[str, Any]]:
    found = dict(known)
    wanted = [each for each in combinations() if only in f"{each.model} {each.title}"]
    if not only:
        wanted = [each for each in wanted if key_of(asdict(each)) not in known]
    for row in rows(jobs, wanted):
        words = row.get("failed") or f"{100 * row['error']:+.2f} %  {row['seconds']:.1f} s"
        given = row["combination"]
        print(f"{given['model']:<22} {Combination(**given).title:<60} {words[:160]}", flush=True)
        found[key_of(given)] = row
        DATA.parent.mkdir(parents=True, exist_ok=True)
        DATA.write_text(_as_text(_in_order(found)), "utf-8")
    return _in_order(found)


def _in_order(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    order = [key_of(asdict(each)) for each in combinations()]
    return [found[key] for key in order if key in found]


def rows(jobs: int, wanted: list[Combination]) -> Iterator[dict[str, Any]]:
    """Trace each combination in a separate child, which shares the modules imported here."""
    import_all()
    context = multiprocessing.get_context("fork")
    # those with the most operations last
    slow = "llama-3.1-8b", "llava-v1.6-mistral-7b", "qwen2.5-vl-3b", "qwen2.5-vl-7b", "gemma-3-4b"
    wanted = sorted(wanted, key=lambda row: (row.model in slow, row.stage))
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(recorded, wanted, chunksize=1)


def import_all() -> None:
    """Import what traces need, so that forks of this process have it."""
    warnings.simplefilter("ignore")
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "DIFFUSERS_VERBOSITY": "error"}
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    from tunec.compiler.tracing.live import single_process, zero  # noqa: F401

    for name in ("deepspeed", "diffusers", "peft", "transformers"):
        importlib.import_module(name)
    for first in (Combination("llama-3.2-1b"), Combination("stable-diffusion-v1-5", sequence=0)):
        single_process.run(subject(first))
    gc.collect()
    gc.freeze()


def recorded(row: Combination) -> dict[str, Any]:
    """The record of one combination, or the reason why it could not be traced."""
    try:
        return traced_row(row)
    except Exception as fault:  # noqa: BLE001  a row that fails is recorded as such
        last = traceback.extract_tb(fault.__traceback__)[-1]
        words = f"{type(fault).__name__}: {str(fault)[:200]} ({last.name})"
        return {"combination": asdict(row), "failed": words}


def traced_row(row: Combination) -> dict[str, Any]:
    """The record of one trace: bytes by phase, and bytes at the peak by group."""
    from tunec.compiler.tracing.live.single_process import run

    asked = subject(row)
    trace = run(asked)
    comparison = compare(trace, account(asked.workload, asked.layout))
    return {
        "combination": asdict(row),
        "peak_bytes": trace.peak.peak_bytes,
        "peak_phase": trace.peak.name,
        "phases": {each.name: each.peak_bytes for each in trace.phases},
        "groups": {
            name: traced
            for each in comparison.phases
            if each.phase == trace.peak.name
            for name, (traced, _) in each.groups.items()
        },
        "accounted_bytes": comparison.accounted_bytes,
        "error": comparison.error,
        "seconds": round(trace.seconds, 2),
        "versions": dict(trace.versions),
    }


if __name__ == "__main__":
    main()
