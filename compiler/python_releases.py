"""The releases of Python on which packages install, as the packages declare them."""

from collections.abc import Iterable, Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases

KNOWN: Final = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
"""Minor releases of Python, old to new."""

USUAL: Final = "3.12"
"""The release to install where several would do: most packages have wheels for it."""

DECLARED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "accelerate": (("0.21.0", ">=3.8"), ("1.1.0", ">=3.9"), ("1.11.0", ">=3.10")),
    "axolotl": (("0.6.0", ">=3.10"), ("0.20.0", ">=3.12")),
    "bitsandbytes": (("0.46.0", ">=3.9"), ("0.49.0", ">=3.10")),
    "diffusers": (("0.22.0", ">=3.8"), ("0.37.0", ">=3.10"), ("0.42.0", ">=3.11")),
    "liger-kernel": (("0.8.4", ">=3.10"),),
    "llamafactory": (("0.9.2", ">=3.9"), ("0.9.4", ">=3.11")),
    "ms-swift": (("4.6.0", ">=3.9"),),
    "nemo-automodel": (("0.1.0", ">=3.10"), ("0.7.0", ">=3.11")),
    "openrlhf": (("0.8.4", ">=3.10,<3.13"),),
    "peft": (("0.4.0", ">=3.8"), ("0.14.0", ">=3.9"), ("0.18.0", ">=3.10")),
    "sglang": (("0.5.1", ">=3.10"), ("0.5.11", ">=3.10,<3.14"), ("0.5.22", ">=3.11,<3.14")),
    "simpletuner": (
        ("2.2.0", ">=3.11,<3.13"),
        ("3.0.0", ">=3.11,<3.14"),
        ("3.2.0", ">=3.12,<3.14"),
        ("4.9.0", ">=3.12,<3.15"),
    ),
    "torch": (
        ("1.13.0", "<3.12"),
        ("2.0.0", ">=3.8,<3.12"),
        ("2.2.0", ">=3.8,<3.13"),
        ("2.5.0", ">=3.9,<3.14"),
        ("2.9.0", ">=3.10,<3.15"),
        ("2.15.0", ">=3.11,<3.16"),
    ),
    "transformers": (
        ("4.31.0", ">=3.8"),
        ("4.47.0", ">=3.9"),
        ("5.0.0", ">=3.10"),
        ("5.21.0", ">=3.11"),
    ),
    "trl": (("0.12.0", ">=3.9"), ("0.25.0", ">=3.10"), ("1.15.0", ">=3.11")),
    "unsloth": (
        ("2025.3.5", ">=3.9,<3.13"),
        ("2025.8.5", ">=3.9,<3.14"),
        ("2026.3.5", ">=3.9,<3.15"),
    ),
    "verl": (("0.5.0", ">=3.10"), ("0.9.1", ">=3.10,<3.13")),
    "vllm": (
        ("0.8.4", ">=3.9,<3.13"),
        ("0.10.2", ">=3.9,<3.14"),
        ("0.11.1", ">=3.10,<3.14"),
        ("0.20.0", ">=3.10,<3.15"),
        ("0.32.0", ">=3.11,<3.15"),
    ),
}
"""By distribution: the first release of each declaration, and the Python that it needs.

`Requires-Python` of the files on PyPI, read on 2026-11-29; for torch, OpenRLHF and SGLang also the
tags of their Linux wheels, as they publish no wheel for other releases. A distribution, or a
release before the first one listed, is not bounded. `tests/bundle/test_python_releases.py` asks the
index in the nightly run."""


def pythons(requirements: Iterable[str]) -> tuple[str, ...]:
    """The known releases of Python on which all of these requirements install, old to new."""
    bounds = [each for each in map(_declared, requirements) if each is not None]
    return tuple(each for each in KNOWN if all(bound.contains(each) for bound in bounds))


def _declared(requirement: str) -> Releases | None:
    """The Python that a pinned requirement needs; None if it pins nothing or none is known."""
    name, _, release = requirement.partition("==")
    rows = DECLARED.get(name.partition("[")[0], ())
    if not release or not rows:
        return None
    told = [needs for first, needs in rows if Version(first) <= Version(release)]
    return Releases(told[-1]) if told else None


def spelled(found: tuple[str, ...]) -> str:
    """Releases of Python in words, such as `3.11 to 3.14`; empty if any would do."""
    if found in ((), KNOWN):
        return ""
    if found[-1] == KNOWN[-1]:
        return f"{found[0]} or later"
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def preferred(found: tuple[str, ...]) -> str:
    """The release to install among those that would do."""
    return USUAL if USUAL in found or not found else found[-1]
