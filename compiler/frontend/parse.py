"""parse: text of any format to nodes, with every fault as a diagnostic."""

from typing import Literal

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.text import Origin, decode, forbidden_character
from tunec.compiler.frontend.yaml_nodes import parse_yaml

Format = Literal["yaml", "json", "spec"]
"""`yaml`: scalars as PyYAML's SafeLoader types them (YAML 1.1), which is what the consumers use.
`json`: what Python's `json` module reads. `spec`: YAML whose scalars are typed by the core schema
of YAML 1.2, where `1e-4` is a number and `no` is text."""


def parse(
    source: str | bytes, file: str, format: Format, *, line: int = 1, column: int = 1
) -> tuple[Node | None, tuple[Diagnostic, ...]]:
    """Read a document; never raises for any input.

    Returns the tree, or None if nothing more can be read, and every fault found. `line` and
    `column` are the place in `file` where the text begins.
    """
    origin = Origin(file, line, column)
    text, fault = decode(source, origin, bom_allowed=format != "json")
    fault = fault or forbidden_character(text, origin, json=format == "json")
    if fault is not None:
        return None, (fault,)
    if format == "json":
        from tunec.compiler.frontend.json_nodes import parse_json

        return parse_json(text, origin)
    return parse_yaml(text, origin, core_schema=format == "spec")
