"""Modules that a consumer imports and that cannot be had, as modules that do nothing.

A consumer's loader imports kernels, trackers and clouds that no question is about. Only the
standard library is imported here: it runs in a consumer's environment.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of some names, and those below them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if not any(name == each or name.startswith(f"{each}.") for each in self._names):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Empty(ModuleType):
    """Whatever is asked of it is there."""

    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # a class, so that a consumer may make one of its own from it
        kind = name[:1].isupper()
        found = type(name, (), {}) if kind else MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found


def stand_in(*names: str) -> None:
    """Let these be imported, whether they are there or not."""
    sys.meta_path.insert(0, _Finder(names))
