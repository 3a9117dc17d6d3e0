"""multidatabackend.json: the list of data sets, the first of them the pictures to train on.

Keys are addressed by position: `[0]` the training pictures, `[1]` the cache of text embeddings,
`[2]` pictures for evaluation.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed

FACTORY: Final = "simpletuner 3.1.6 and 4.10.1, helpers/data_backend/factory.py init_backend_config"

_TRAIN, _TEXT, _EVALUATION = "[0]", "[1]", "[2]"


def _pictures(at: str, name: str, folder: str, kind: str, side: int) -> Mapping[str, Json]:
    return {
        f"{at}.id": name,
        f"{at}.type": "local",
        f"{at}.dataset_type": kind,
        f"{at}.instance_data_dir": folder,
        f"{at}.resolution": side,
        f"{at}.resolution_type": "pixel_area",
    }


def _keys(at: str) -> tuple[str, ...]:
    return tuple(_pictures(at, "", "", "", 0))


def _write_train(plan: Plan) -> Mapping[str, Json]:
    return _pictures(_TRAIN, "train", plan.data.train, "image", plan.data.image_width)


def _read_train(found: Mapping[str, Json]) -> Mapping[str, Any]:
    slots: dict[str, Any] = {}
    if found.get(f"{_TRAIN}.instance_data_dir"):
        slots["data.train"] = found[f"{_TRAIN}.instance_data_dir"]
    side, kind = found.get(f"{_TRAIN}.resolution"), found.get(f"{_TRAIN}.resolution_type")
    if side is not None and kind != "area":
        slots |= {"data.image_width": side, "data.image_height": side}
    return slots


def _write_evaluation(plan: Plan) -> Mapping[str, Json]:
    folder = plan.data.evaluation
    if folder is None:
        return {}
    return _pictures(_EVALUATION, "evaluation", folder, "eval", plan.data.image_width)


def _read_evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get(f"{_EVALUATION}.dataset_type") != "eval":
        return {}
    return {"data.evaluation": found.get(f"{_EVALUATION}.instance_data_dir")}


DATA: Final = (
    Entry(
        _keys(_TRAIN),
        ("data.train", "data.image_width", "data.image_height"),
        _write_train,
        _read_train,
        FACTORY,
    ),
    *(
        constant(f"{_TEXT}.{key}", value, "helpers/data_backend/config_rules.py: one is required")
        for key, value in {
            "id": "text-embeds",
            "type": "local",
            "dataset_type": "text_embeds",
            "default": True,
            "cache_dir": "cache/text",
        }.items()
    ),
    Entry(
        _keys(_EVALUATION),
        ("data.evaluation",),
        _write_evaluation,
        _read_evaluation,
        FACTORY,
        absent=((ALWAYS, {"data.evaluation": None}),),
    ),
    fixed("data.images", 1, f"{FACTORY}: a sample is one picture"),
    fixed("data.sequence", 0, "helpers/caching/text_embeds.py: captions are cut by the tokenizer"),
    fixed("data.packing", value=False, source=FACTORY),
    fixed("data.image_tokens", 0, FACTORY),
    fixed("data.vision_tokens", 0, FACTORY),
)


def render(values: Mapping[str, Json], header: Sequence[str]) -> str:
    """The data sets as a list, in the order of their positions; JSON has no room for a header."""
    del header
    return json.dumps([values[at] for at in sorted(values)], indent=2) + "\n"


def parse(text: str) -> Json:
    """The document whose keys are positions; ValueError for a text that is no list of objects."""
    found = json.loads(text)
    if not isinstance(found, list):
        raise ValueError("a list of data sets is wanted")
    return {f"[{position}]": each for position, each in enumerate(found)}


_MARKS: Final = frozenset(
    {
        *("instance_data_dir", "caption_strategy", "cache_dir", "cache_dir_vae", "resolution"),
        *(
            "repeats",
            "crop",
            "resolution_type",
            "disabled",
            "default",
            "text_embeds",
            "dataset_name",
        ),
        *("minimum_image_size", "metadata_backend", "probability", "csv_file", "aws_bucket_name"),
    }
)
"""Keys beside `id` and `type`, which items of many kinds of lists have."""


def recognise(document: Json) -> bool:
    """Whether a document is a list of data sets, as `parse` gives it."""
    first = document.get("[0]") if isinstance(document, dict) else None
    if not isinstance(first, dict) or not first.keys() & {"id", "type"}:
        return False
    marks = len(first.keys() & _MARKS)
    return "dataset_type" in first or marks > 1 or (marks == 1 and {"id", "type"} <= first.keys())
