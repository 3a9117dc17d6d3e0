"""The questions to Axolotl's validator about the YAML, and the reading of its answers."""

from collections.abc import Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.releases import row_at
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    require_known,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.dotted_paths import flat
from tunec.targets.axolotl.packages import PACKAGE, RELEASES, WRITTEN, installed_releases
from tunec.targets.deepspeed.verify import delivered, engine_programs, named_by
from tunec.targets.huggingface.verify import SECONDS

SCRIPT: Final = "tunec.targets.axolotl.consumer"
FILE: Final = "axolotl.yaml"
_HUB_1: Final = ("httpx==0.28.1", "httpcore==1.0.9")
_BELOW: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("0", ("tokenizers==0.22.2", "huggingface_hub==0.36.2", "datasets==4.5.0", *_HUB_1)),
    ("0.14", ("tokenizers==0.22.2", "huggingface_hub==1.3.7", "datasets==4.5.0", *_HUB_1)),
    ("0.15", ("tokenizers==0.22.2", "huggingface_hub==1.12.2", "datasets==4.5.0", *_HUB_1)),
    ("0.17", ("tokenizers==0.22.2", "huggingface_hub==1.17.0", "datasets==4.8.4", *_HUB_1)),
    ("0.19", ("tokenizers==0.23.1", "huggingface_hub==1.17.0", "datasets==4.8.4", *_HUB_1)),
)
"""Pins of packages below transformers: within requirements.txt, from 0.17 `Requires-Dist`."""


_LAZY: Final = Version("0.18")
"""The first release whose validator does not import model loaders."""
_LOADERS: Final = (
    *("bitsandbytes==0.49.1", "triton==3.5.1", "numba==0.63.1", "llvmlite==0.46.0"),
    *("numpy==2.3.5", "posthog==6.7.11", "backoff==2.2.1", "distro==1.9.0", "six==1.17.0"),
    *("python-dateutil==2.9.0.post0", "fastcore==1.8.16", "colorama==0.4.6", "fire==0.7.0"),
    *("termcolor==2.5.0", "evaluate==0.4.1", "liger-kernel==0.6.4"),
)

KNOWN: Final = [each for each in RELEASES if Version(each) >= Version(WRITTEN)]
"""The releases whose packages are known."""


def requirements(version: Version) -> tuple[str, ...]:
    """Exact pins of a release's packages, as far as its validator imports them."""
    below = row_at(version, _BELOW)
    above = (
        f"{name}=={each}"
        for name, each in installed_releases(version).items()
        if name != "deepspeed"
    )
    loaders = _LOADERS if version < _LAZY else ()
    return (f"{PACKAGE}=={version}", "addict==2.4.0", *below, *above, *loaders)


def where(case: Case) -> Where:
    """The environment of the release. Raises EnvironmentUnavailable if its packages are unknown."""
    require_known(PACKAGE, case.version, KNOWN)
    return Where(PACKAGE, str(case.version), requirements(case.version))


def _ask(case: Case, _: Answers) -> Question:
    files = named_by(case, FILE)
    return {"verb": "resolve", "yaml": case.text(FILE), "files": files, **case.machine()}


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    found = flat(answer["values"])
    written = flat(values_of(case, FILE))
    kept = {key: _like(written[key], found[key]) for key in written if key in found}
    lost = tuple(key for key, each in written.items() if key not in found and each is not None)
    return TranslatedAnswer(
        values={**found, **kept}, ignored=tuple(key for key in lost if not _moved(key))
    )


def _moved(key: str) -> bool:
    """Whether the validator replaces a key by another, as it does attention flags."""
    return key.endswith("_attention")


def _like(written: Json, found: Json) -> Json:
    """Data sets as written, without the defaults that the classes add."""
    if isinstance(written, list) and isinstance(found, list) and len(written) == len(found):
        return [_like(one, other) for one, other in zip(written, found, strict=True)]
    if isinstance(written, Mapping) and isinstance(found, Mapping):
        return {key: found.get(key) for key in written}
    return found


PROGRAMS: Final = (
    Program("axolotl validate_config", FILE, SCRIPT, where, _ask, _hear, seconds=SECONDS),
    *engine_programs(delivered),
)
