"""What accelerate does where its file's section for an engine is silent."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Definition
from tunec.compiler.target import Documents
from tunec.targets.accelerate.deepspeed import inline_defaults
from tunec.targets.accelerate.fsdp import fsdp_defaults


def section_defaults(documents: Documents) -> Iterator[Definition]:
    """The defaults of the one engine that the file names."""
    yield from inline_defaults(documents)
    yield from fsdp_defaults(documents)
