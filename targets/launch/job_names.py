"""What jobs are called where names are DNS labels."""

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 40


def dns_label(name: str) -> str:
    """A label of RFC 1035 from a name, with room for what pods and machines add to it."""
    label = _UNSAFE.sub("-", name.lower()).strip("-")[:_LONGEST].strip("-")
    return label if label[:1].isalpha() else f"run-{label}".strip("-")
