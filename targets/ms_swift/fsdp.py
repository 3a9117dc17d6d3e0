"""Rows of ms-swift's `fsdp`: a name, or a JSON text that holds the Trainer's two keys for FSDP.

The rows are those of the Trainer's own keys, as it has them from 5.10 on.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain
from tunec.compiler.target import Entry, Json
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.fsdp import FSDP as OF_THE_TRAINER
from tunec.targets.huggingface.fsdp_row import CONFIG, SWITCH, words_of
from tunec.targets.ms_swift.packages import TRAINER

KEY: Final = "fsdp"
_VERSION: Final = "version"
_SOURCE: Final = (
    "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `_init_fsdp`: a name, a path, or a JSON text "
    "with `fsdp` and `fsdp_config`"
)
_PRESETS: Final[Mapping[str, Mapping[str, Json]]] = {
    "fsdp2": {
        KEY: "full_shard auto_wrap",
        CONFIG: {
            f"{KEY}_{_VERSION}": 2,
            "reshard_after_forward": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": True,
            "state_dict_type": "SHARDED_STATE_DICT",
            "activation_checkpointing": True,
        },
    }
}
"""Names of files that it brings: ms-swift 4.0.4 to 4.6.0 config/fsdp2.json."""
_ROWS: Final = tuple(each for each in OF_THE_TRAINER if each.since == SWITCH)
_FLAGS: Final = {"true": True, "false": False}


def held(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The Trainer's keys that `fsdp` stands for; empty if it is off, or in a file of its own."""
    said = found.get(KEY)
    if isinstance(said, str) and said.lstrip().startswith("{"):
        try:
            said = json.loads(said)
        except ValueError:
            return {}
    held = _PRESETS.get(said, {}) if isinstance(said, str) else said
    if not isinstance(held, Mapping):
        return {}
    config = {key.removeprefix(f"{KEY}_"): each for key, each in (held.get(CONFIG) or {}).items()}
    return {KEY: held.get(KEY) or "full_shard auto_wrap", CONFIG: config} if held else {}


def _write(plan: Plan) -> Mapping[str, Json]:
    """The name of a file that ms-swift brings, if it says the same, else the keys as JSON."""
    config: dict[str, Json] = {}
    for each in (row for row in _ROWS if row.when(plan)):
        config |= {key.removeprefix(f"{CONFIG}."): v for key, v in each.write(plan).items()}
    del config[KEY]
    if not config.get("cpu_offload"):
        config.pop("cpu_offload", None)
    version = {f"{KEY}_{_VERSION}": config.pop(_VERSION)}
    flags = {key: _FLAGS.get(str(each), each) for key, each in config.items()}
    keys = {KEY: words_of(plan), CONFIG: {**version, **flags}}
    name = next((name for name, preset in _PRESETS.items() if preset == keys), "")
    return {KEY: name or json.dumps(keys)}


def _row(each: Entry) -> Entry:
    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        there = {key: place.value for key, place in found_plain(held(found)).items()}
        return each.read(there) if there else {}

    return replace(
        each,
        keys=(KEY,),
        write=_write,
        read=read,
        source=f"{_SOURCE}; {each.source}",
        since=None,
        package=TRAINER,
    )


FSDP: Final = tuple(map(_row, _ROWS))
