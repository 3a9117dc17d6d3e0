"""Buckets are to follow a width that the model does not have under that name."""

import json
import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import said_in

_KEYS: Final = (
    "reduce_bucket_size",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
)
_COMPOSITE: Final = frozenset(
    {"idefics2", "llava", "llava_next", "video_llava", "vipllava"}
    | {"blip-2", "instructblip", "clip", "kosmos-2", "pix2struct"}
)
"""Configurations of transformers 4.44.2 with neither hidden_size nor hidden_sizes (each was built);
in most others the key has another name in the file (d_model, n_embd) and the one looked for too."""

_IN_PARTS: Final = frozenset(
    {"encoder-decoder", "vision-encoder-decoder", "speech-encoder-decoder", "t5gemma", "t5gemma2"}
)
"""The same of transformers 5.23.0 (each was built), where their parts are no text_config."""
_BY_NAME: Final = (
    (re.compile(r"(?:\A|[/_-])(?:trocr|donut|nougat)(?:\Z|[/_-])"), "vision-encoder-decoder"),
    (re.compile(r"(?:\A|[/_-])t5-?gemma(?:\Z|[/_-])"), "t5gemma"),
)
"""microsoft/trocr-*, naver-clova-ix/donut-*, facebook/nougat-* and google/t5gemma-*: their
config.json says the model_type."""
_FORMERLY: Final = "transformers<4.45"


def _check(run: Run) -> Iterator[Finding]:
    said = [each for each in said_in(run, _KEYS) if each.value == "auto"]
    if not said or run.deepspeed_reader == "plain":
        return
    for name, family in _models(run):
        is_formerly = family in _COMPOSITE and run.runs(_FORMERLY) is not False
        if family not in _IN_PARTS and not is_formerly:
            continue
        names = ", ".join(each.path.rpartition(".")[2] for each in said)
        yield Finding(
            f"{names} auto, and {name} ({family}) has no hidden_size at its top",
            tuple(each.label("cannot be filled in", primary=each is said[0]) for each in said),
            (
                "the trainer takes hidden_size squared, 0.9 of that, and ten times hidden_size",
                "its parts have one each, and they are not asked"
                if family in _IN_PARTS
                else "releases from 4.45 on look into text_config too",
            ),
            "write numbers, as 16777216 for a width of 4096",
            severity="warning" if is_formerly and run.runs(_FORMERLY) is None else None,
        )


def _models(run: Run) -> Iterator[tuple[str, str]]:
    """The models whose kind is known: by their own config among the files, or by name."""
    for each in run.unread:
        if "model_type" in each.keys and each.name.endswith(".json"):
            try:
                found = json.loads(each.text)
            except ValueError:
                continue
            if isinstance(found, dict) and not found.get("hidden_size"):
                yield each.name, str(found.get("model_type"))
    name = run.model_name
    if run.model is not None:
        yield run.model.path, run.model.architecture.family
    elif name is not None:
        lower = name.lower()
        yield from ((name, family) for shape, family in _BY_NAME if shape.search(lower))


RULE = Rule(
    name="auto-buckets-need-hidden-size",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2, 4.44.2 integrations/deepspeed.py `trainer_config_finalize`: "
            "neither `hidden_size` nor `hidden_sizes` entry; 4.46.3 looks into text_config "
            "(huggingface/transformers#33829), and 5.23.0 no further"
        ),
        "hiyouga/LlamaFactory#4754; huggingface/transformers#21342, #22176, #20169",
    ),
    check=_check,
)
