"""The releases of verl that rows were read from, and the packages of each."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.ir.plan import Draft
from tunec.compiler.releases import Releases, row_at
from tunec.schemas.objective_facts import OBJECTIVES

PACKAGE: Final = "verl"
RELEASES: Final = ("0.8.0", "0.9.0", "0.9.1")
SUPPORTED: Final = Releases(">=0.8,<0.10")
SOURCE: Final = "verl 0.8.0 to 0.9.1"

_RANGES: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("0.8", {}),
    ("0.9", {"transformers": ">=5.5.3,!=5.6.0,<5.11"}),
)
"""`Requires-Dist` of the wheels: 0.8.0 names no bounds, and peft has none."""
_BROUGHT: Final = (
    ("0.8", {"transformers": "4.57.6", "peft": "0.18.1"}),
    ("0.9", {"transformers": "5.10.4", "peft": "0.19.1"}),
)
"""Releases of about the same date within these ranges, beside which its config was composed."""


_ENGINES: Final = (
    ("0.8", {"vllm": "0.12.0", "sglang": "0.5.8"}),
    ("0.9", {"vllm": "0.24.0", "sglang": "0.5.14"}),
)
"""verl 0.8.0 and 0.9.1 `Requires-Dist` of the extras `vllm` and `sglang`. Beside 0.9 pip cannot
install SGLang of that extra: 0.5.12 pins transformers 5.6.0, which verl 0.9.1 excludes; the next
possible one is 0.5.14."""


_REWARDED: Final = (
    ("0.8", ("flash-attn", "cachetools")),
    ("0.9", ("TransferQueue>=0.1.10", "cachetools")),
)
"""What `main_ppo` imports and no wheel of verl requires; only vLLM brings cachetools.

verl 0.8.0 trainer/ppo/ray_trainer.py `left_right_2_no_padding` unpads by flash_attn, whatever
attention is used; 0.9.0 to 0.9.1 trainer/ppo/v1/trainer_base.py imports transfer_queue, whose
release is that of 0.9.1's extra `verl-core`; workers/rollout/llm_server.py, and from 0.9.1 on
router.py, import LRUCache.
"""


_FLASH: Final = "flash-attn"
"""What a critic attends with: verl 0.8.0 to 0.9.1 utils/model.py `load_valuehead_model`."""


def imports(draft: Draft, version: Version) -> tuple[str, ...]:
    """The further packages that the program for a plan imports."""
    if not OBJECTIVES[draft.objective.kind].generates:
        return ()
    attends = (_FLASH,) if OBJECTIVES[draft.objective.kind].values else ()
    return tuple(dict.fromkeys((*row_at(version, _REWARDED), *attends)))


def companions(version: Version) -> Mapping[str, str]:
    """The packages beside a release of verl in an environment, with their releases."""
    return {**installed_releases(version), **row_at(version, _ENGINES)}


def ranges(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release of verl accepts, by package."""
    return {name: Releases(text) for name, text in row_at(version, _RANGES).items()}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that are used beside a release of verl, by package."""
    return row_at(version, _BROUGHT)
