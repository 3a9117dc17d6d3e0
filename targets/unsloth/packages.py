"""The releases of Unsloth that the rows were read from, and the packages of each."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases, row_at

PACKAGE: Final = "unsloth"
TRAINER: Final = "transformers"
RELEASES: Final = ("2026.3.18", "2026.7.6", "2026.9.8", "2026.9.14", "2026.10.9")
"""The last release before `use_dora` and before unknown keys are refused; then the last two that
differ in the spelling of choices."""
WRITTEN: Final = "2026.9.8"
"""The first release that files are written for: earlier ones load a model for full training with
adapters (unsloth_cli/commands/train.py: `full_finetuning` from 2026.9.5), and pass no optimizer
(`_optimizer_for_host` from 2026.9.8)."""
SEES: Final = "2026.10.8"
"""The first release whose command looks for images in the data (unsloth_cli/commands/train.py
`_dataset_modalities`); before it a vision-language model is trained on text."""
SUPPORTED: Final = Releases(">=2026.3.8,<2026.11")

_RANGES: Final = (
    ("2026.3", {"transformers": ">=4.51.3,<=5.3.0", "peft": ">=0.18.0"}),
    ("2026.4", {"transformers": ">=4.51.3,<=5.5.0", "peft": ">=0.18.0"}),
    ("2026.10", {"transformers": ">=4.52.4,<=5.17.0", "peft": ">=0.18.0"}),
)
"""`Requires-Dist` of the wheels, without the excluded releases in between; trl is 0.18.2 to 0.24.0
until 2026.9, and up to 1.15.0 from 2026.10.4."""
_INSTALLED: Final = (
    ("2026.3", {"transformers": "5.3.0", "peft": "0.18.1"}),
    ("2026.4", {"transformers": "5.5.0", "peft": "0.19.1"}),
    ("2026.10", {"transformers": "5.17.0", "peft": "0.21.2"}),
)
"""The releases that pip installs within these: the newest transformers, and a peft of about the
same date."""


_TORCH: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("2026.3", {"torch": "2.10.0"}),
    ("2026.7", {"torch": "2.11.0"}),
    ("2026.9", {"torch": "2.12.1"}),
    ("2026.10", {}),
)
"""The newest torch below the bound of a wheel: 2026.3.18, 2026.7.6, 2026.9.8, 2026.10.9."""


def companions(version: Version) -> Mapping[str, str]:
    """The packages beside a release of Unsloth in an environment, with their releases."""
    return {**installed_releases(version), **row_at(version, _TORCH, {})}


def ranges(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release of Unsloth accepts, by package."""
    return {name: Releases(text) for name, text in row_at(version, _RANGES, {}).items()}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that are used beside a release of Unsloth, by package."""
    return row_at(version, _INSTALLED, {})


CONFIG: Final = "unsloth 2026.3.18 to 2026.10.9 unsloth_cli/config.py"
TRAIN: Final = "unsloth 2026.9.8 to 2026.10.9 unsloth_cli/commands/train.py `train`"
STUDIO: Final = "unsloth 2026.9.8 to 2026.10.9 studio/backend/core/training/trainer.py"
