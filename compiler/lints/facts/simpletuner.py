"""SimpleTuner's flags as config.json, config.env and command lines spell them."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.counts import number_of
from tunec.compiler.lints.facts.simpletuner_env import MORE, extra, variables_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import keys

FLOW: Final = frozenset(
    {
        *("ace_step", "auraflow", "chroma", "flux", "flux2", "hidream", "hunyuanvideo"),
        *("kandinsky5_image", "kandinsky5-image", "kandinsky5_video", "kandinsky5-video"),
        *("ltxvideo", "lumina2", "omnigen", "qwen_image", "sana", "sanavideo", "sd3", "wan"),
        *("z_image", "z-image"),
    }
)
"""simpletuner 3.1.6 helpers/models/*/model.py `PREDICTION_TYPE = PredictionTypes.FLOW_MATCHING`."""
EPSILON: Final = frozenset(
    {"kolors", "pixart", "pixart_sigma", "sd1x", "sd2x", "sdxl", "deepfloyd"}
)
"""simpletuner 3.1.6 helpers/models/*/model.py `PREDICTION_TYPE`: EPSILON or V_PREDICTION."""

_OFF: Final[tuple[Any, ...]] = (False, "false", {})


def configs(run: LintContext) -> Iterator[Document]:
    """The documents that hold SimpleTuner's flags."""
    return (each for each in run.of("simpletuner") if not each.is_view)


def said(document: Document, flag: str) -> Place | None:
    """Where a flag is written, under any of its spellings; None also where it is null."""
    names = (flag, f"--{flag}", *variables_of(flag))
    found = (*(document.get(name) for name in names), extra(document).get(flag))
    return next((at for at in found if at is not None and at.value not in (None, "None", "")), None)


def flags_read(*flags: str) -> tuple[str, ...]:
    """What a rule reads that asks for flags, wherever `said` finds them."""
    names = (name for flag in flags for name in (flag, f"--{flag}", *variables_of(flag)))
    return keys("simpletuner", *names, MORE)


def word(document: Document, flag: str, otherwise: str = "") -> str:
    """The lower-case text of a flag."""
    at = said(document, flag)
    return str(at.value).strip().lower() if at is not None else otherwise


def is_on(at: Place | None) -> bool:
    """Whether a switch is turned on: SimpleTuner takes words as well as booleans."""
    return at is not None and str(at.value).strip().lower() in ("true", "1", "yes", "on")


def amount(at: Place | None) -> float | None:
    """The number of a flag, which may be written as text."""
    return number_of(at.value) if at is not None else None


def family(document: Document) -> str:
    """The model family in lower case; empty where nobody says it."""
    return word(document, "model_family")


def is_lora(document: Document) -> bool:
    """Whether adapters are trained."""
    return "lora" in word(document, "model_type", "full")


def deepspeed_of(run: LintContext, document: Document) -> Place | None:
    """What puts SimpleTuner's run on DeepSpeed: its own flag, or else accelerate's file."""
    own = said(document, "deepspeed_config")
    if own is not None:
        return None if own.value in _OFF else own
    found = run.said("accelerate", "distributed_type")
    return found if found is not None and str(found.value).upper() == "DEEPSPEED" else None
