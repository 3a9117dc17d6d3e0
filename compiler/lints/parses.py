"""What files hold, and whose they are: worked out once, however often they are read."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.formats import Parsed, parse_text
from tunec.compiler.lints.recognition import recognised
from tunec.compiler.target import File, Target
from tunec.schemas.frozen import replace

Known = tuple[Target, File, str]
"""The target, its file, and what rules call it."""


class Parses(Struct):
    """What was parsed so far, for those who read the same files again beside others.

    It is for one set of targets and of readers.
    """

    _parsed: dict[tuple[str, bytes | str], tuple[tuple[Parsed, ...], list[Diagnostic]]] = field(
        default_factory=dict
    )
    _known: dict[int, Known | None] = field(default_factory=dict)
    """By the identity of what was parsed, which `_parsed` keeps."""

    def parsed(
        self, name: str, content: bytes | str
    ) -> tuple[tuple[Parsed, ...], list[Diagnostic]]:
        """The documents of a file, and every fault of its syntax."""
        key = name, content
        if key not in self._parsed:
            documents, faults = parse_text(name, content)
            self._parsed[key] = tuple(map(listed, documents)), faults
        return self._parsed[key]

    def known(
        self, name: str, parsed: Parsed, targets: Mapping[str, Target], readers: Sequence[str]
    ) -> Known | None:
        """Whose a document of that file is; None for nobody's who is known."""
        at = id(parsed)
        if at not in self._known:
            self._known[at] = recognised(parsed, targets, readers, name)
        return self._known[at]


def listed(parsed: Parsed) -> Parsed:
    """A list of mappings as a mapping by position, `[0]`: SimpleTuner's data sets."""
    items = parsed.root.items
    if not items or any(each.fields is None for each in items):
        return parsed
    fields = {f"[{at}]": each for at, each in enumerate(items)}
    return replace(parsed, root=replace(parsed.root, items=None, fields=fields))
