"""`software`: the versions of programs, in a spec or its hardware."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.schemas.source import Path

PROGRAMS: Final = (
    "SwissArmyTransformer",
    "accelerate",
    "ai-toolkit",
    "axolotl",
    "deepspeed",
    "kubeflow-trainer-api",
    "kubeflow-training",
    "liger-kernel",
    "llama-cookbook",
    "llamafactory",
    "ms-swift",
    "musubi-tuner",
    "nemo-automodel",
    "openrlhf",
    "peft",
    "sd-scripts",
    "simpletuner",
    "skypilot",
    "slurm",
    "torch",
    "torchtune",
    "transformers",
    "trl",
    "unsloth",
    "verl",
)
"""Programs whose release affects something; a test compares them with the targets."""

_OTHERS: Final = frozenset(("torchao", "torchaudio", "torchtext", "torchtitan"))
"""Programs with similar names, which affect nothing."""

_ALIKE: Final = 0.8
"""The least likeness of a misspelling, by difflib's ratio: `torhc` for `torch`."""


def check_software(value: Any, tree: Node, base: Path = ()) -> Iterator[Diagnostic]:
    """Check that `software` below `base` names versions of programs.

    Programs without effect are allowed; a misspelt one would be ignored. The shape reports values
    that are no text.
    """
    named = value if isinstance(value, Mapping) else {}
    for name, version in named.items():
        path = (*base, "software", name)
        if isinstance(name, str):
            yield from _misspelt(name, tree, path)
        if isinstance(version, str) and not is_version(version):
            yield not_a_version(version, tree, path)


def _misspelt(name: str, tree: Node, path: Path) -> Iterator[Diagnostic]:
    meant = meant_program(name)
    if meant is None:
        return
    node, reached = descend(tree, path)
    span = node.key_span if reached == path else place(node)
    yield error(
        "E0301",
        f"`{shortened(name)}` is not the name of a program whose release matters",
        span,
        label="would be ignored",
        path=path,
        help=f"did you mean `{meant}`?",
        fix=Fix((Edit(span, meant),), "unsafe") if span is not None and reached == path else None,
    )


def meant_program(name: str) -> str | None:
    """The program whose name is misspelt; None: the name is correct, or resembles none."""
    from difflib import SequenceMatcher

    if name in PROGRAMS:
        return None
    spelled = plain_name(shortened(name, 100))
    if spelled in _OTHERS:
        return None
    likeness = {each: SequenceMatcher(None, plain_name(each), spelled).ratio() for each in PROGRAMS}
    best = max(likeness, key=likeness.__getitem__)
    return best if likeness[best] >= _ALIKE else None


def plain_name(name: str) -> str:
    """A distribution's name in the normalized form of PEP 503."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def is_version(text: str) -> bool:
    """Whether a text is one version, not a range or a word."""
    from packaging.version import Version

    try:
        Version(text)
    except ValueError:  # InvalidVersion is one; so is a number of too many digits
        return False
    return True


def not_a_version(text: str, tree: Node, path: Path) -> Diagnostic:
    """The fault of a text that is no version."""
    return error(
        "E0310",
        f"`{shortened(text)}` is not a version",
        place(descend(tree, path)[0]),
        path=path,
        notes=("defaults and keys differ between versions, so give one version, not a range",),
        help="write the version that runs, such as `4.40.2` or `0.19`",
    )
