"""The releases of Unsloth whose sources the rows were read from, and what each brings."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases

PACKAGE: Final = "unsloth"
TRAINER: Final = "transformers"
RELEASES: Final = ("2026.3.18", "2026.7.6", "2026.9.8", "2026.9.14", "2026.10.9")
"""The last before `use_dora` and before unknown keys are refused; then the last two that differ in
how words are spelt."""
WRITTEN: Final = "2026.9.8"
"""The first release that files are written for: those before it load a model to be trained in full
as one with adapters (unsloth_cli/commands/train.py: `full_finetuning` from 2026.9.5), and hand on
no optimizer (`_optimizer_for_host` from 2026.9.8)."""
SEES: Final = "2026.10.8"
"""The first release whose command looks for images in the data (unsloth_cli/commands/train.py
`_dataset_modalities`); before it a model that sees is trained on its text."""
SUPPORTED: Final = Releases(">=2026.3.8,<2026.11")

_RANGES: Final = (
    ("2026.3", {"transformers": ">=4.51.3,<=5.3.0", "peft": ">=0.18.0"}),
    ("2026.4", {"transformers": ">=4.51.3,<=5.5.0", "peft": ">=0.18.0"}),
    ("2026.10", {"transformers": ">=4.52.4,<=5.17.0", "peft": ">=0.18.0"}),
)
"""`Requires-Dist` of the wheels, less what they leave out between; trl is 0.18.2 to 0.24.0 until
2026.9, and to 1.15.0 from 2026.10.4."""
_INSTALLED: Final = (
    ("2026.3", {"transformers": "5.3.0", "peft": "0.18.1"}),
    ("2026.4", {"transformers": "5.5.0", "peft": "0.19.1"}),
    ("2026.10", {"transformers": "5.17.0", "peft": "0.21.2"}),
)
"""What pip takes of these: the newest transformers, and a peft of its time."""


_TORCH: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("2026.3", {"torch": "2.10.0"}),
    ("2026.7", {"torch": "2.11.0"}),
    ("2026.9", {"torch": "2.12.1"}),
    ("2026.10", {}),
)
"""The newest that is below the bound of a wheel: 2026.3.18, 2026.7.6, 2026.9.8, 2026.10.9."""


def companions(version: Version) -> Mapping[str, str]:
    """What goes with one of Unsloth in an environment, by package."""
    return {**brought(version), **_held(_TORCH, version)}


def _held(table: tuple[tuple[str, Mapping[str, str]], ...], version: Version) -> Mapping[str, str]:
    """The row of a release; nothing where it is older than those that were read."""
    return next((found for since, found in reversed(table) if version >= Version(since)), {})


def ranges(version: Version) -> Mapping[str, Releases]:
    """The releases that one of Unsloth takes, by package."""
    return {name: Releases(text) for name, text in _held(_RANGES, version).items()}


def brought(version: Version) -> Mapping[str, str]:
    """The releases that go with one of Unsloth, by package."""
    return _held(_INSTALLED, version)
