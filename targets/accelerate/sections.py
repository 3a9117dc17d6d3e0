"""accelerate's defaults for the keys that an engine's section leaves out."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Definition
from tunec.compiler.target import Documents
from tunec.targets.accelerate.deepspeed import inline_defaults
from tunec.targets.accelerate.fsdp import fsdp_defaults


def section_defaults(documents: Documents) -> Iterator[Definition]:
    """The defaults for the engine that the file names."""
    yield from inline_defaults(documents)
    yield from fsdp_defaults(documents)
