"""The names by which ms-swift knows models, and the loader of each."""

import importlib
from collections.abc import Mapping
from typing import Any

from tunec.targets.ms_swift.consumer.quiet import quietly


def models(_: Mapping[str, Any]) -> dict[str, str]:
    """Model type and template by the name of a repository, in this release.

    model/model_meta.py `get_matched_model_meta` compares the last part of a path, in lower case,
    with those of the registered names; of equal ones the first counts.
    """
    with quietly():
        mapping: Any = importlib.import_module("swift.model").MODEL_MAPPING
    found: dict[str, str] = {}
    for kind, meta in mapping.items():
        for group in meta.model_groups:
            template = group.template or meta.template
            for model in group.models:
                for path in (model.hf_model_id, model.ms_model_id):
                    if path:
                        found.setdefault(path.rpartition("/")[2].lower(), f"{kind} {template}")
    return found
