"""Diagnostics for programs: one JSON array, or one object a line."""

import json
from collections.abc import Iterable

from tunec.compiler.diagnostics.diagnostic import Diagnostic


def render(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as one JSON array, indented."""
    found = [each.to_json() for each in diagnostics]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def render_lines(diagnostics: Iterable[Diagnostic]) -> str:
    """One diagnostic a line, as JSON Lines."""
    return "".join(json.dumps(each.to_json(), ensure_ascii=False) + "\n" for each in diagnostics)
