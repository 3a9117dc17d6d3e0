"""A list of data sets has no store for text embeddings, or none that is the default."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.sets import DataSet, lists
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, sets in lists(run):
        stores = [each for each in sets if each.kind == "text_embeds"]
        pictures = [each for each in sets if each.kind in ("image", "video")]
        first = _start(pictures)
        if first is None:
            continue
        defaults = [each for each in stores if each.value("default")]
        if not stores:
            yield Finding(
                f"{document.name} has no data set of type text_embeds",
                (first.key_label("its captions have no store"),),
                (),
                "add an entry with dataset_type: text_embeds, default: true and a cache_dir",
            )
        elif len(stores) > 1 and len(defaults) != 1:
            at = _start(stores)
            what = "none" if not defaults else "several"
            yield Finding(
                f"{len(stores)} data sets of type text_embeds, and {what} is the default",
                (at.key_label("") if at is not None else first.key_label(""),),
                (),
                "write default: true in one of them",
            )


def _start(sets: list[DataSet]) -> Place | None:
    found = (each.place(key) for each in sets for key in ("id", "type"))
    return next((at for at in found if at is not None), None)


RULE = Rule(
    name="text-embeds-missing",
    severity="error",
    consequence="init",
    consumers=("simpletuner<3.2",),
    sources=(
        (
            "simpletuner 3.1.6 helpers/data_backend/factory.py `_validate_text_embed_backends`: "
            "must contain at least one image dataset AND at least one text_embed dataset; Only "
            "one text embed backend can be marked as default; 4.10.1 "
            "`_ensure_text_embed_backends_present` makes one itself"
        ),
    ),
    check=_check,
)
