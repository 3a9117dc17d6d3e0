"""One rank of a rehearsal: trains a few steps as the files say, and writes down what ran.

Started by the launcher as `-m tunec.compiler.rehearse.live.rank FOLDER`, or forked (torchrun.py),
in FOLDER/work, which holds the files. Writes FOLDER/rank-N.json: what was read from the running
engine, or the fault.
"""

import json
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def main(folder: Path) -> int:
    """Rehearse and report; 1 where something was raised."""
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
    """Let DeepSpeed build nothing: gloo alone carries what shared memory would speed up."""
    import importlib
    import importlib.util

    if importlib.util.find_spec("deepspeed") is not None:
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
