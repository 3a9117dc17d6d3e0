"""Files of which nothing was read, and that cannot be translated."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.lints.documents import Reading
from tunec.compiler.translate.overrides import without_their_config
from tunec.compiler.translate.scripts import not_understood
from tunec.schemas.source import COMMAND_LINE, start_of


def unread(reading: Reading) -> Iterator[Diagnostic]:
    """Errors for files of an unknown kind, for overrides of one, or if nothing was read at all."""
    yield from without_their_config(reading.documents)
    for file in reading.unread:
        keys = ", ".join(file.keys[:5]) or "none"
        yield not_understood(
            f"{file.name} is not a known kind of file",
            (Label("", start_of(file.name)),),
            "name its reader with --from, or leave it out",
            (f"its keys: {keys}", *_known_otherwise(file.keys)),
        )
    if not (reading.documents or reading.unread or reading.faults or reading.missing):
        yield not_understood(
            "no file configures or starts a trainer that tunec reads",
            (Label("", start_of(COMMAND_LINE)),),
            "name the trainer's config, or the script that starts it",
            ("`megatron sft` and `megatron rlhf` of ms-swift train by Megatron-Core: not read",),
        )


_PRESET: Final = frozenset({"training", "lora", "inference"})


def _known_otherwise(keys: Iterable[str]) -> Iterator[str]:
    """What a file is for, if it resembles a config and starts no run."""
    if _PRESET.issubset(keys):
        yield (
            "Unsloth's Studio fills its forms with such presets: they name no model and no data, "
            "and `unsloth train` refuses their keys"
        )
