"""Whether a document is a whole configuration, or a part of one that somebody shows.

Threads and documentation show the few keys that they speak of. What a reader requires and such a
part leaves out is no fault of the part: then a rule warns at most.
"""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.lints.document import TRL, Document

_WHOLE: Final[Mapping[str, tuple[str, ...]]] = {
    "axolotl": ("base_model", "output_dir"),
    "llamafactory": ("model_name_or_path", "output_dir"),
    **dict.fromkeys(TRL, ("model_name_or_path",)),
}
"""Keys that every file of a program has which anybody runs: its examples have both throughout
(axolotl 0.19.0 examples, llamafactory 0.9.4 examples); trl 0.8.6 to 1.16.0 trainer/model_config.py
`ModelConfig`: without a model there is nothing to load."""


def is_fragment(document: Document) -> bool:
    """Whether a file lacks what every whole one has; flags that start a program are whole."""
    if document.format == "shell":
        return False
    return any(document.get(key) is None for key in _WHOLE.get(document.kind, ()))
