"""Combining a language model and a vision tower."""

from collections.abc import Callable

from msgspec import Struct, field

from tunec.compiler.analyses.architecture.decoder import Backbone
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.models.architecture import Architecture, ImageTokens, Stack


class Parts(Struct, frozen=True, kw_only=True):
    """A vision-language model whose tree can be built."""

    backbone: Backbone
    tower: tuple[Stack, ...]
    images: ImageTokens
    grow: Callable[[Tree], None]
    """Adds the tower and the projector, from the root of the tree."""
    tied: bool
    text_root: str = "model.language_model"
    head_root: str = ""
    """The module that holds the output projection; empty: the model itself."""
    projector: tuple[Stack, ...] = field(default=())
    remote_code: bool = False


def vision_language(facts: Facts, parts: Parts) -> Architecture:
    """Derive a vision-language model from its parts."""
    backbone = parts.backbone
    names, sizes = backbone.names, backbone.sizes
    tree = Tree("text")
    parts.grow(tree)
    backbone.grow(tree.at(parts.text_root))
    backbone.grow_head(tree.at(parts.head_root), tied=parts.tied)
    head = f"{parts.head_root}.{names.head}" if parts.head_root else names.head
    return Architecture(
        family=facts.family,
        kind="vision-language",
        modules=tree.modules(),
        stacks=(*parts.tower, *parts.projector, *backbone.stacks),
        hidden=sizes.hidden,
        vocab=sizes.vocab,
        context=sizes.context,
        tied=parts.tied,
        logit_softcap=sizes.logit_softcap,
        images=parts.images,
        remote_code=parts.remote_code,
        head=head,
        embedding=f"{parts.text_root}.{names.tokens}",
    )
