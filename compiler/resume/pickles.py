"""Reads numbers from torch's files without running their code.

A pickle names classes and calls them. Here no module is imported: a call becomes an object that
keeps its arguments, and tensors stay in the file.
"""

import pickle
import zipfile
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import Any, Final

_LARGEST: Final = 1e15
"""Largest number of steps, samples or a seed; larger ones are not plausible."""
_MOST: Final = 2**26
"""Most bytes of a file's objects without its tensors; larger files are not read."""


class StubObject:
    """Stands for a class or a function, and for every object that it makes."""

    def __init__(self, *arguments: Any, **_: Any) -> None:
        """Keep the arguments."""
        self.arguments = arguments
        self.state: Any = None

    def __call__(self, *arguments: Any, **_: Any) -> "StubObject":
        """Ignore the call."""
        return StubObject(*arguments)

    def __setstate__(self, state: Any) -> None:
        """Keep the attributes."""
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore the item."""

    def append(self, value: Any) -> None:
        """Ignore the value."""

    def extend(self, values: Any) -> None:
        """Ignore the values."""


class _Reader(pickle._Unpickler):  # noqa: SLF001  see below
    """In Python, since the C reader takes 32 GB for nine bytes (calibrate/formats/snapshot.py)."""

    def find_class(self, module: str, name: str) -> Any:
        """A placeholder for the name, except for OrderedDict, which is used as it is."""
        return OrderedDict if (module, name) == ("collections", "OrderedDict") else StubObject

    def persistent_load(self, _: Any) -> Any:
        """A placeholder for a tensor's bytes, which are not read."""
        return StubObject()


def objects(path: Path) -> Any:
    """What a file of `torch.save` holds, classes as names; None where it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(each for each in archive.namelist() if each.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > _MOST:
                return None
            content = archive.read(name)
        return _Reader(BytesIO(content)).load()
    except Exception:  # noqa: BLE001  a torn or foreign file has nothing to say
        return None


def attributes(found: Any) -> dict[str, Any]:
    """The attributes of a kept object."""
    state = found.state if isinstance(found, StubObject) else found
    return dict(state) if isinstance(state, dict) else {}


def number(found: Any, *keys: str) -> int | float | None:
    """The number at a path of keys."""
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return found if -_LARGEST < found < _LARGEST else None
