"""Axolotl's own documents, and what its rules ask of them."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document

FLASH: Final = ("attn_implementation~flash_attention", "flash_attention")
"""Either spelling of a FlashAttention: the key of axolotl 0.19, and the older switch."""
KERNELS: Final = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
"""Kernels of LoRA: axolotl 0.8.1 to 0.19.0 utils/schemas/config.py."""


def configs(run: LintContext) -> Iterator[Document]:
    """The documents that are Axolotl's own."""
    return (each for each in run.of("axolotl") if not each.is_view)


def schemas_ever(document: Document) -> tuple[str, ...]:
    """The JSON Schemas of a document's file in the releases that are known; none for a view."""
    return _schemas(document, () if document.target is None else document.target.releases)


def schemas_here(run: LintContext, document: Document) -> tuple[str, ...]:
    """That of the release which is named, or those of all that are known."""
    release = run.release("axolotl")
    return (
        _schemas(document, (str(release.version),)) if release.is_named else schemas_ever(document)
    )


def _schemas(document: Document, releases: Iterable[str]) -> tuple[str, ...]:
    target, file = document.target, document.file
    if target is None or file is None or file.schema is None:
        return ()
    names = (file.schema(target.dialect(target.release(each))) for each in releases)
    return tuple(dict.fromkeys(name for name in names if name is not None))
