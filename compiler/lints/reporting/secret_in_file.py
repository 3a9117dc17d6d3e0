"""A token or a key of a service stands in the file."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TOKEN: Final = re.compile(r"hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}")
_KEY: Final = re.compile(r"[0-9a-f]{40}")
_NAME: Final = re.compile(r"(?:api_?key|token|secret)$", re.IGNORECASE)


def _check(run: Run) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for document in run.documents:
        for place in () if document.is_view else document.where(_is_secret).values():
            at = (place.document.name, place.path)
            if at not in seen:
                seen.add(at)
                yield _finding(place)


def _is_secret(path: str, value: Any) -> bool:
    name = path.rpartition(".")[2]
    if not isinstance(value, str):
        return False
    return bool(_TOKEN.fullmatch(value) or (_NAME.search(name) and _KEY.fullmatch(value)))


def _finding(place: Place) -> Finding:
    return Finding(
        f"`{place.path}` holds a secret in clear",
        (place.label("readable to whoever sees the file"),),
        ("configurations are committed, and saved beside every checkpoint",),
        "remove it, revoke it, and log in on the machine (hf auth login, wandb login)",
    )


RULE = Rule(
    name="secret-in-file",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        "huggingface.co/docs/hub/security-tokens: user access tokens begin with hf_",
        "transformers 5.23.0 training_args.py `to_dict`: obfuscates only fields that end in _token",
    ),
    check=_check,
)
