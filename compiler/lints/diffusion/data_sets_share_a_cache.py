"""Two data sets have one name, or keep what they computed in one folder."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.sets import lists
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FOLDERS: Final = ("cache_dir_vae", "cache_dir")


def _check(run: Run) -> Iterator[Finding]:
    for _, sets in lists(run):
        names: dict[str, Place] = {}
        folders: dict[str, Place] = {}
        for each in sets:
            at = each.place("id")
            if at is not None and isinstance(at.value, str):
                if at.value in names:
                    yield _named(at, names[at.value])
                names.setdefault(at.value, at)
            for key in _FOLDERS:
                folder = each.place(key)
                if folder is None or not isinstance(folder.value, str) or "{" in folder.value:
                    continue
                path = folder.value.rstrip("/")
                if path in folders and path:
                    yield _shared(folder, folders[path], key)
                folders.setdefault(path, folder)


def _named(at: Place, first: Place) -> Finding:
    return Finding(
        f"two data sets are called {at.value}",
        (at.label("refused"), first.label("the first", primary=False)),
        ("what is known of each data set is kept by its name",),
        "give each a name of its own",
        severity="error",
        consequence="init",
    )


def _shared(at: Place, first: Place, key: str) -> Finding:
    """Latents are kept apart from everything else, or refused; text embeddings mix."""
    is_text = key == "cache_dir" and first.path.endswith(".cache_dir")
    return Finding(
        f"two data sets keep their cache in {at.value}",
        (at.label("shared"), first.label("the first", primary=False)),
        (
            (
                "embeddings are found by file name: pictures of the same name, or another "
                "resolution, take each other's"
            ),
        ),
        "give each a folder of its own",
        severity="warning" if is_text else None,
        consequence="silent" if is_text else None,
    )


RULE = Rule(
    name="data-sets-share-a-cache",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/data_backend/factory.py: You can only have one "
            "backend named ...; VAE image embed cache directory ... is the same as another VAE "
            "image embed cache directory; ... as the text embed cache directory"
        ),
        (
            "helpers/caching/text_embeds.py `hash_prompt_with_path`: by the prompt, and the "
            "model's own encoders of each data set write to one file"
        ),
    ),
    check=_check,
)
