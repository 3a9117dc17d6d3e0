"""A file in YAML where the reader asks for JSON."""

import json
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final[tuple[tuple[str, str, Consequence], ...]] = (
    ("trainer", "deepspeed", "parse"),
    ("trainer", "fsdp_config", "parse"),
    ("trainer", "accelerator_config", "parse"),
    ("accelerate", "deepspeed_config.deepspeed_config_file", "init"),
    ("launch", "flags.deepspeed_config_file", "init"),
)
"""Kind of document, key that names a file, and when that is read."""
_ENDINGS: Final = (".yaml", ".yml")


def _check(run: Run) -> Iterator[Finding]:
    for kind, key, consequence in _KEYS:
        for document in run.of(kind):
            at = document.get(key)
            if document.is_view or at is None or not _names_yaml(at):
                continue
            text = _text(run, str(at.value))
            if text is None or not _is_json(text):
                yield Finding(
                    f"{at.path} {at.value} is read as JSON, and is YAML"
                    + (" by its name" if text is None else ""),
                    (at.label("read as JSON"),),
                    ("json.load of the file: JSONDecodeError",),
                    "write the file as JSON",
                    consequence=consequence,
                    severity="warning" if text is None else None,
                )


def _names_yaml(at: Place) -> bool:
    return isinstance(at.value, str) and at.value.lower().endswith(_ENDINGS)


def _text(run: Run, name: str) -> str | None:
    """The text of the file that is named so, where it was read."""
    files: tuple[Document, ...] = tuple(each for each in run.documents if not each.is_view)
    read = [(each.name, each.text) for each in files]
    read += [(each.name, each.text) for each in run.unread]
    wanted = name.rpartition("/")[2]
    return next((text for held, text in read if held.rpartition("/")[2] == wanted), None)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


RULE = Rule(
    name="file-of-another-format",
    severity="error",
    consequence="parse",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/deepspeed.py `HfDeepSpeedConfig.__init__`: "
            "json.load of a path that exists"
        ),
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: json.load of fsdp_config; "
            "trainer_pt_utils.py `AcceleratorConfig.from_json_file`"
        ),
    ),
    check=_check,
)
