"""A memory snapshot of torch: a pickle of plain containers, read without executing its code.

torch 2.1 to 2.13 cuda/memory.py `_dump_snapshot`: segments with the bytes that they hold at the
end, and for each device the last allocations and frees before. Going back from the end gives the
peak of the recorded period.
"""

import io
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from tunec.compiler.calibrate.observation import Observation


class Unsafe(ValueError):
    """A pickle that refers to code."""


class _Plain(pickle._Unpickler):  # noqa: SLF001  see below
    """Reads dicts, lists, texts and numbers, and refuses all else that a pickle can refer to.

    It is the reader in Python: the one in C takes 32 GB for nine bytes that store an object under
    the number 2**31 (CPython 3.11 to 3.13 Modules/_pickle.c `_Unpickler_MemoPut`).
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise Unsafe(f"it names {module}.{name}, and a snapshot holds plain data alone")

    def persistent_load(self, _: Any) -> NoReturn:
        raise Unsafe("it refers to objects outside of it, and a snapshot holds plain data alone")


_CHANGES: Final[Mapping[str, tuple[str, int]]] = {
    "alloc": ("allocated", 1),
    "free_completed": ("allocated", -1),
    "segment_alloc": ("reserved", 1),
    "segment_map": ("reserved", 1),
    "segment_free": ("reserved", -1),
    "segment_unmap": ("reserved", -1),
}
"""The counter that each event of a trace changes, and in which direction."""


def read(content: bytes) -> list[Observation]:
    """The observations in a snapshot. Raises Unsafe, or ValueError if it is damaged."""
    try:
        found = _Plain(io.BytesIO(content)).load()
    except Unsafe:
        raise
    except Exception as fault:  # noqa: BLE001  a damaged pickle fails in any way there is
        raise ValueError(f"it is no whole pickle: {fault or type(fault).__name__}") from None
    if not isinstance(found, dict) or not isinstance(found.get("segments"), list):
        return []
    segments = [each for each in found["segments"] if isinstance(each, dict)]
    traces = found.get("device_traces")
    peaks = [
        _peaks([each for each in segments if each.get("device", 0) == device], trace)
        for device, trace in enumerate(traces if isinstance(traces, list) else [])
    ]
    peaks = peaks or [_peaks(segments, ())]
    source = "a memory snapshot"
    allocated, reserved = (max(each[name] for each in peaks) for name in ("allocated", "reserved"))
    return [Observation(source, allocated=allocated, reserved=reserved)] if reserved else []


def _peaks(segments: Sequence[Mapping[str, Any]], trace: Any) -> dict[str, int]:
    now = {"allocated": _sum(segments, "allocated_size"), "reserved": _sum(segments, "total_size")}
    most = dict(now)
    events = trace if isinstance(trace, list | tuple) else ()
    for event in reversed(events):
        change = _CHANGES.get(str(event.get("action"))) if isinstance(event, dict) else None
        if change is None:
            continue
        name, sign = change
        now[name] -= sign * _size(event.get("size"))
        most[name] = max(most[name], now[name])
    return most


def _sum(segments: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(_size(each.get(key)) for each in segments)


def _size(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0
