"""Answers that are each worked out in a process of its own, with limits of time and memory."""

import json
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Question = Callable[[], Row]


def answers(
    asked: Mapping[str, Question], jobs: int, limits: tuple[int, int]
) -> Iterator[tuple[str, Row]]:
    """Ask each question in a fork of this process, `jobs` at once; yield answers as they come.

    The limits are seconds of a processor and gibibytes. A row has `refused` with the reason if
    there is no answer.
    """
    waiting, running = list(asked), dict[int, str]()
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop(0)
                running[_forked(Path(folder, name), asked[name], limits)] = name
            pid, status = os.wait()
            name = running.pop(pid)
            yield name, _answer(Path(folder, name), status)


def answered(question: Question) -> Row:
    """The answer to a question, or the reason why there is none."""
    from tunec.compiler.tracing.subject import Untraceable

    try:
        return question()
    except Untraceable as reason:
        return {"refused": str(reason)}
    except MemoryError:
        return {"refused": "it takes more memory than the sweep gives"}
    except Exception as fault:  # noqa: BLE001  a fault of ours, which the page shows
        return {"refused": f"tunec's own fault: {told(fault)}"}


def told(fault: Exception) -> str:
    """An exception in one line."""
    return f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"


def _forked(place: Path, question: Question, limits: tuple[int, int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    seconds, gibibytes = limits
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (gibibytes << 30, gibibytes << 30))
    place.write_text(json.dumps(answered(question)), "utf-8")
    os._exit(0)


def _answer(place: Path, status: int) -> Row:
    if place.exists():
        found: Row = json.loads(place.read_text("utf-8"))
        return found
    ended = os.waitstatus_to_exitcode(status)
    slow = ended == -signal.SIGXCPU
    why = "it takes longer than the sweep gives" if slow else f"its process ended with {ended}"
    return {"refused": why}
