"""OpenRLHF's programs of rewards, up to where they start processes. Verb: `check`.

Ray, the modules that need vLLM, and kernels that only devices run are stood in for: what is
asserted comes before their first use.
"""

import contextlib
import importlib
import io
import runpy
import sys
import types
import warnings
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import MagicMock, patch

_RAY = (
    *("ray", "ray.util", "ray.util.placement_group", "openrlhf.trainer.ray"),
    *(f"openrlhf.trainer.ray.{name}" for name in ("launcher", "ppo_actor", "ppo_critic")),
    *("ray.util.queue", "openrlhf.trainer.ppo_trainer", "openrlhf.trainer.ppo_trainer_async"),
)
_KERNELS = (
    *("flash_attn", "flash_attn.bert_padding", "flash_attn.utils"),
    *("flash_attn.utils.distributed", "pylatexenc"),
)


class _ReachedError(Exception):
    """The program has checked its flags, and would load its model."""


def _reach(*_: Any, **__: Any) -> Any:
    raise _ReachedError


def check(question: Mapping[str, Any]) -> dict[str, Any]:
    """In: `program`, its module; `argv`. Out: `refused`, None where it would go on."""
    importlib.import_module("transformers")
    importlib.import_module("peft")
    for name in (*_RAY, *_KERNELS):
        sys.modules.setdefault(name, _stand_in(name))
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return {"refused": _refused(question["program"], question["argv"])}


def _stand_in(name: str) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__getattr__ = lambda each: MagicMock(name=f"{name}.{each}")  # type: ignore[method-assign]
    return made


def _refused(program: str, argv: list[str]) -> dict[str, str] | None:
    try:
        with _surroundings(program, argv):
            runpy.run_module(program, run_name="__main__", alter_sys=False)
    except _ReachedError:
        return None
    except (Exception, SystemExit) as fault:  # noqa: BLE001  whatever ends it is the answer
        return {"stage": "program", "type": type(fault).__name__, "message": str(fault)}
    return None


@contextlib.contextmanager
def _surroundings(program: str, argv: list[str]) -> Iterator[None]:
    """A strategy that shows nothing, and a model's config that is not downloaded."""
    utils: Any = importlib.import_module("openrlhf.utils")
    transformers: Any = importlib.import_module("transformers")
    config = MagicMock()
    with (
        patch.object(utils, "get_strategy", lambda args: MagicMock(args=args)),
        patch.object(transformers.AutoConfig, "from_pretrained", lambda *_, **__: config),
        patch.object(transformers.AutoModel, "_model_mapping", _Mapping()),
        patch.object(transformers, "BitsAndBytesConfig", _reach),
        patch.object(sys, "argv", [program, *argv]),
    ):
        yield


class _Base:
    """In the place of the classes of a family."""

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> Any:
        """The flags are checked by then."""
        raise _ReachedError


class _Model(_Base):
    """What the program makes its own class of."""


class _Mapping(dict[Any, Any]):
    def __getitem__(self, _: Any) -> Any:
        return _Model


VERBS = {"check": check}
