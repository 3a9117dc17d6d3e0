"""The comment at the top of an emitted file: versions and digests."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import PlanRenderer
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.version import __version__


def header_of(loaded: Loaded, plan: Plan) -> tuple[str, ...]:
    """The comment lines of a file whose format allows comments."""
    read = "".join(f"{name}:{digest}" for name, digest in loaded.files)
    texts = _DECIDED.texts(plan)
    decided = ", ".join(texts[group] for group in _SORTED)
    return (f"tunec {__version__}; spec {_digest(read)}, plan {_digest(f'[{decided}]')}",)


def _decided(values: Mapping[str, object]) -> str:
    """Slots and values as text, as a list of pairs."""
    return ", ".join(f"({path!r}, {repr(value)!r})" for path, value in sorted(values.items()))


_DECIDED: Final = PlanRenderer("compiler.header.decided", _decided)
_SORTED: Final = tuple(dict.fromkeys(SLOTS[path].group for path in sorted(SLOTS)))
"""The groups, ordered by their slots' paths, which begin with the group's name."""


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
