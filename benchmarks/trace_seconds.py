"""Seconds and memory that one `tunec trace` takes, without planning: model, engine, figures."""

import os
import resource
import time
import warnings
from typing import Final

from trace_combinations import subject
from trace_row import Combination

ROWS: Final = (
    Combination("llama-3.2-1b"),
    Combination("llama-3.1-8b", method="lora", checkpointed=True),
    Combination("llama-3.1-8b", states="mixed", engine="deepspeed", world=64, stage=3),
)


def main() -> None:
    """Trace each row in a child, whose peak memory is then its own."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    for row in ROWS:
        child = os.fork()
        if child == 0:
            _trace(row)
            os._exit(0)
        os.waitpid(child, 0)


def _trace(row: Combination) -> None:
    from tunec.compiler.tracing.live.single_process import run

    began = time.perf_counter()
    trace = run(subject(row))
    whole = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{row.model} {row.title}: {trace.seconds:.1f} s, {whole:.1f} s with imports, "
        f"{peak:.0f} MiB resident",
        flush=True,
    )


if __name__ == "__main__":
    main()
