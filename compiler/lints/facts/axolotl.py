"""Axolotl's own documents, and what its rules ask of them."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document

FLASH: Final = ("attn_implementation~flash_attention", "flash_attention")
"""Either spelling of a FlashAttention: the key of axolotl 0.19, and the older switch."""


def configs(run: LintContext) -> Iterator[Document]:
    """The documents that are Axolotl's own."""
    return (each for each in run.of("axolotl") if not each.is_view)
