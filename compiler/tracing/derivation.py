"""Make the derived card of a config. The module runs as a process, since it imports torch.

`python -m tunec.compiler.tracing.derivation GIVEN CARD`: GIVEN holds `model`, `config` and `code`.
If the card cannot be made, the last line of stderr gives the reason, and CARD is not written.
"""

import json
import os
import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tunec.compiler.derived_cards import REFUSED
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.derived_card import VERSION, DerivedCard


def derived(config: Mapping[str, Any], model: str = "", code: str | None = None) -> DerivedCard:
    """Derive the card of a config. Raises Untraceable with the reason if that is impossible.

    `code` is a directory whose Python files are run if `auto_map` names them.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = "diffusers" if config.get("_class_name") else "transformers"
        architecture = (
            _of_diffusers(config) if config.get("_class_name") else _of_text(config, code)
        )
    release = f"{library} {version(library)}"
    return DerivedCard(VERSION, architecture.family, model, release, config, architecture)


def _of_text(config: Mapping[str, Any], code: str | None) -> Architecture:
    from tunec.compiler.tracing.live.derivation.architecture import architecture_of

    return architecture_of(config, code)


def _of_diffusers(config: Mapping[str, Any]) -> Architecture:
    from tunec.compiler.tracing.live.derivation.denoiser import denoiser_of

    return denoiser_of(config)


def main(given: str, card: str) -> int:
    """Read the request from the file `given`, and write the card to the file `card`."""
    asked = json.loads(Path(given).read_text("utf-8"))
    try:
        made = derived(asked["config"], asked["model"], asked["code"])
    except Untraceable as reason:
        sys.stderr.write(f"{reason}\n")
        return REFUSED
    Path(card).write_bytes(made.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
