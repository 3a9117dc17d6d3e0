"""Lets SimpleTuner's parsers be imported without a GPU, in the consumer's own environment.

Nothing here changes an answer of the parsers. Packages that only training or data loading uses are
replaced by stubs if they are not installed; an installed package always comes first.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

ABSENT: Final[Mapping[str, str]] = {
    "atomicwrites": "data_backend/local.py writes cache files with it",
    "boto3": "data_backend/aws.py",
    "botocore": "data_backend/aws.py",
    "bs4": "models/sana/pipeline.py cleans captions with it",
    "hangul_romanize": "models/ace_step/lyrics_utils/lyric_tokenizer.py",
    "imageio": "webhooks/handler.py, training/validation.py encode videos with it",
    "loguru": "models/ace_step/pipeline.py logs with it",
    "music_vocoder": "models/ace_step/music_dcae/music_dcae_pipeline.py",
    "num2words": "models/ace_step/lyrics_utils/lyric_tokenizer.py",
    "py3langid": "models/ace_step/language_segmentation/LangSegment.py",
    "pypinyin": "models/ace_step/lyrics_utils/lyric_tokenizer.py",
    "scipy": "training/validation_audio.py, models/hidream/schedule.py",
    "sentencepiece": "the tokenizers of diffusers and transformers",
    "skrample": "scheduled_sampling/skrample_adapter.py samples images with it",
    "spacy": "models/ace_step/lyrics_utils/lyric_tokenizer.py",
    "torchaudio": "audio/load.py, models/ace_step",
    "trainingsample": "image_manipulation/load.py decodes images with it",
    "wandb": "training/validation_images.py and other loggers",
}
"""Packages that are replaced by stubs, and what imports them (simpletuner 3.1.6 and 4.10.1,
`helpers/`)."""


class _AbsentModule(types.ModuleType):
    """A module whose every public name is an empty class, which can be imported and inherited."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `ABSENT`, last on `sys.meta_path`, so that real packages come first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def install() -> None:
    """Make `import simpletuner` possible; call it before anything of the package is imported."""
    sys.meta_path.append(_AbsentFinder())
    _import_torchvision()
    _alias_transformers_names()


def _import_torchvision() -> None:
    """Import torchvision, whose compiled operators need the CUDA build of torch.

    `torchvision/_meta_registrations.py` (0.28.0) registers fake kernels for nms and qnms, which the
    CPU build does not know; the import only needs their declaration.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT_ALIVE.append(library)
        for name in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        importlib.import_module("torchvision")


_KEPT_ALIVE: Final[list[Any]] = []
"""Libraries that are kept alive, since torch forgets the operators of a collected one."""


def _alias_transformers_names() -> None:
    """Restore a name that transformers 5.23.0 no longer has.

    simpletuner 4.10.1 imports it for a type annotation
    (`models/mageflow/vendor/models/modules/text_encoder.py`).
    """
    found = importlib.util.find_spec("transformers.models.qwen3_vl.modeling_qwen3_vl")
    if found is None:
        return
    module = importlib.import_module("transformers.models.qwen3_vl.modeling_qwen3_vl")
    outputs = importlib.import_module("transformers.modeling_outputs")
    if not hasattr(module, "Qwen3VLCausalLMOutputWithPast"):
        vars(module)["Qwen3VLCausalLMOutputWithPast"] = outputs.CausalLMOutputWithPast


@contextmanager
def device(capability: Sequence[int] | None, count: int = 1, memory: int = 0) -> Iterator[None]:
    """Answer torch's questions about CUDA as on a machine with `count` devices of that capability.

    Each has `memory` bytes. The parsers decide by these answers what they accept (`--ramtorch`,
    `--mixed_precision=fp8`; in 3.1.6 the choices of `--base_model_precision`). None leaves torch as
    it is.
    """
    with ExitStack() as stack:
        for name, answer in _device_answers(capability, count, memory).items():
            stack.enter_context(mock.patch(f"torch.cuda.{name}", answer))
        yield


def _device_answers(capability: Sequence[int] | None, count: int, memory: int) -> dict[str, Any]:
    if capability is None:
        return {}
    major, minor = capability
    properties = types.SimpleNamespace(
        major=major, minor=minor, name=f"sm_{major}{minor}", total_memory=memory
    )
    return {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: 0,
        "get_device_properties": lambda _device=None: properties,
        "get_device_capability": lambda _device=None: (major, minor),
    }
