"""One rank of a rehearsal: it trains a few steps from the files, and records what ran.

The launcher starts it as `-m tunec.compiler.rehearse.live.rank FOLDER`, or torchrun.py forks it, in
FOLDER/work, which holds the files. It writes FOLDER/rank-N.json: the state that it read from the
running engine, or the exception.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def main(folder: Path) -> int:
    """Rehearse and report; return 1 if an exception was raised."""
    from tunec.compiler.rehearse.live.watchdog import tie

    rank = int(os.environ.get("RANK", "0"))
    tie(folder, f"rank-{rank}")
    question = json.loads(Path(folder, "question.json").read_text("utf-8"))
    try:
        found = _rehearse(question, folder if rank == 0 else None)
    except BaseException as fault:  # noqa: BLE001  whatever is raised is the answer
        _report(folder, rank, {"fault": f"{type(fault).__name__}: {fault}"})
        traceback.print_exc()
        return 1
    _report(folder, rank, found)
    return 0


def _report(folder: Path, rank: int, found: Mapping[str, Any]) -> None:
    part = Path(folder, f"rank-{rank}.part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.rename(folder / f"rank-{rank}.json")


def _rehearse(question: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    if question["device"] == "cpu":
        _without_kernels()
    from tunec.compiler.rehearse.live.training import train

    return train(question, folder)


def _without_kernels() -> None:
    """Stop DeepSpeed from building its shared memory kernel: gloo alone transfers the data."""
    import importlib
    import importlib.util

    if importlib.util.find_spec("deepspeed") is not None:
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
