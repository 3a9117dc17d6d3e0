"""Try to derive a card of every family that transformers has a head for, from its default config.

What `card_sweep_filled.yaml` says of a family is put into it.

`python benchmarks/card_sweep.py [FAMILY...] [-j 2] [--seconds 300] [--gibibytes 8]` asks each
family in a process of its own and keeps the answers in `card_sweep.jsonl`, of which
`just generate` makes `docs/derived-cards.md`. Families that are not named keep their answers;
`--missing` asks those alone that have none from this release, so that a sweep can be broken off.
Seconds are those of a processor.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import yaml
from forks import Row, answers, told

ROWS: Final = Path(__file__).with_suffix(".jsonl")
HEADS: Final = {
    "sequence-to-sequence": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "encoder": "MODEL_FOR_MASKED_LM_MAPPING",
    "vision-language": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING",
}
"""The tables of transformers' `models/auto/modeling_auto.py` in which a config class is looked up,
by what its head is called here. The first that has it counts: an encoder has a causal head too, as
has Whisper's decoder alone."""
FILLED: Final = Path(__file__).with_name("card_sweep_filled.yaml")
"""Keys that are missing from a class's defaults or do not fit together, as in config.json files."""
Family = tuple[str, Any, str]
"""The name of the head, the config class, and the name of the model's class."""


def families() -> dict[str, Family]:
    """Every family that has such a head, by `model_type`."""
    from transformers.models.auto import modeling_auto

    found: dict[str, Family] = {}
    for head, name in HEADS.items():
        table = getattr(modeling_auto, name)
        for each in table:
            model = table[each]
            model = model[0] if isinstance(model, tuple) else model
            found.setdefault(each.model_type, (head, each, model.__name__))
    return dict(sorted(found.items()))


def filled(family: str) -> Mapping[str, Any]:
    """The keys that are added to the default config of a family."""
    rows = yaml.safe_load(FILLED.read_text("utf-8"))
    return next((row["config"] for row in rows if family in row["families"]), {})


def ask(config: Any, model: str) -> Row:
    """Derive a card from the default config; the row has the modules' parameters or the reason.

    The config names the model's class, as a config.json does, and is filled if necessary.
    """
    from tunec.compiler.tracing.derivation import derived

    try:
        is_given = isinstance(config, Mapping)
        default = config if is_given else {**_default(config), "architectures": [model]}
        given = json.loads(json.dumps(default, default=str))
    except Exception as fault:  # noqa: BLE001  whatever the config's own class raises
        return {"refused": f"the default config cannot be made: {told(fault)}"}
    return {"parameters": derived(given).architecture.parameters}


def _default(config: Any) -> Mapping[str, Any]:
    """The config that the class makes from the filled keys."""
    found: Mapping[str, Any] = config.from_dict(filled(config.model_type)).to_dict()
    return found


def sweep(asked: Mapping[str, Family], jobs: int, limits: tuple[int, int]) -> Iterator[Row]:
    """Derive each family in a fork of this process, `jobs` at once; yield rows as they finish."""
    questions = {name: partial(ask, config, model) for name, (_, config, model) in asked.items()}
    for name, row in answers(questions, jobs, limits):
        yield {"family": name, "head": asked[name][0], **row}


def shuffled(families: Iterable[str]) -> list[str]:
    """Names in the order of their digests, so that the first ones are a sample of all others."""
    return sorted(families, key=lambda each: sha256(each.encode()).hexdigest())


def kept() -> dict[str, Row]:
    """The rows that are kept, by family."""
    lines = ROWS.read_text("utf-8").splitlines() if ROWS.exists() else []
    return {row["family"]: row for row in map(json.loads, lines)}


def keep(rows: Mapping[str, Row]) -> None:
    """Write the rows, sorted by family."""
    ROWS.write_text("".join(json.dumps(rows[name]) + "\n" for name in sorted(rows)), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Derive the requested families, and keep each row as it finishes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--gibibytes", type=int, default=8)
    parser.add_argument("--missing", action="store_true")
    options = parser.parse_args(arguments)
    import torch
    import transformers

    torch.set_num_threads(1)
    rows, every, release = kept(), families(), f"transformers {transformers.__version__}"
    rows = {name: row for name, row in rows.items() if name in every}
    done = {name for name, row in rows.items() if options.missing and row["release"] == release}
    wanted = [each for each in options.families or shuffled(every) if each not in done]
    for row in sweep(
        {each: every[each] for each in wanted}, options.jobs, (options.seconds, options.gibibytes)
    ):
        rows[row["family"]] = {**row, "release": release}
        keep(rows)
        sys.stdout.write(f"{row['family']}: {row.get('refused', 'derived')}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
