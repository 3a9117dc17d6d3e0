"""verl's programs without the packages that only its workers use."""

import importlib.abc
import importlib.machinery
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import MagicMock, patch

_ABSENT: Final[Mapping[str, str]] = {
    "ray": "starts the workers",
    "fastapi": "workers/rollout serves answers with it",
    "uvicorn": "workers/rollout serves answers with it",
    "zmq": "workers/rollout/vllm_rollout hands on weights with it",
    "cachetools": "workers/rollout keeps which server has what in it",
    "aiohttp": "experimental/reward_loop asks servers with it",
    "transfer_queue": "trainer/ppo/v1 hands on answers with it",
    "nvtx": "utils/profiler marks ranges with it",
}
"""Packages that are replaced by stubs, and their purpose (verl 0.8.0 to 0.9.1)."""


class _Absent(types.ModuleType):
    """A module whose every public name can be called and used as a decorator."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []
        self.__version__ = "2.41.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds absent modules, last on `sys.meta_path`, so that installed ones come first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] not in _ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


@contextmanager
def importable() -> Iterator[None]:
    """Make verl importable, without its log and the hub; Hydra raises its errors."""
    around = {"HYDRA_FULL_ERROR": "1", "HF_HUB_OFFLINE": "1", "VERL_LOGGING_LEVEL": "ERROR"}
    finder, before = _Finder(), logging.root.manager.disable
    sys.meta_path.append(finder)
    try:
        with patch.dict(os.environ, around), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
            yield
    finally:
        logging.disable(before)
        sys.meta_path.remove(finder)
