"""OpenRLHF's programs up to training, without the kernels that need a device."""

import argparse
import contextlib
import importlib
import io
import runpy
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from typing import Any, Final, NoReturn
from unittest.mock import MagicMock, patch

_ABSENT: Final = (
    *("flash_attn", "flash_attn.bert_padding", "flash_attn.utils"),
    *("flash_attn.utils.distributed", "pylatexenc"),
)
"""Modules that are replaced by stubs: openrlhf 0.10.4 to 0.11.2 models/ring_attn_utils.py and
utils/math_utils.py import them."""
RAY: Final = (
    *("ray", "ray.util", "ray.util.placement_group", "openrlhf.trainer.ray"),
    *(f"openrlhf.trainer.ray.{name}" for name in ("launcher", "ppo_actor", "ppo_critic")),
)
"""Further imports of cli/train_ppo_ray.py: Ray, and modules that need vLLM."""

_MODULES: Final = ("models", "utils.deepspeed", "trainer.sft_trainer", "trainer.dpo_trainer")


@contextmanager
def importable() -> Iterator[None]:
    """Make OpenRLHF importable, and drop its output and warnings."""
    importlib.import_module("transformers")
    importlib.import_module("peft")
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with stood_in(_ABSENT):
            for name in _MODULES:
                importlib.import_module(f"openrlhf.{name}")
        yield


@contextmanager
def stood_in(names: Sequence[str]) -> Iterator[None]:
    """Replace the absent ones of these modules by stubs while others import them."""
    absent = [name for name in names if name not in sys.modules]
    sys.modules.update({name: _stand_in(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _stand_in(name: str) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__getattr__ = lambda each: MagicMock(name=f"{name}.{each}")  # type: ignore[method-assign]
    return made


@contextmanager
def refusing() -> Iterator[None]:
    """Let argparse raise the message that it would print."""

    def refuse(_: argparse.ArgumentParser, message: str) -> NoReturn:
        raise ValueError(message)

    with patch.object(argparse.ArgumentParser, "error", refuse):
        yield


def run(program: str, argv: Sequence[str], instead: Mapping[tuple[str, str], Any]) -> None:
    """Run a program by its module, as `python -m` does, with replaced names.

    `instead` maps module and name to the replacement that the program imports.
    """
    with ExitStack() as stack:
        for (module, name), other in instead.items():
            stack.enter_context(patch.object(importlib.import_module(module), name, other))
        stack.enter_context(patch.object(sys, "argv", [program, *argv]))
        runpy.run_module(program, run_name="__main__", alter_sys=False)
