"""How ms-swift's parser is run on the file, and how its answers are read."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.sets import choose
from tunec.compiler.target import Json, on_deepspeed
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Fact,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    require_known,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.data_paths import chosen
from tunec.schemas.dotted_paths import flat
from tunec.targets.deepspeed.reader import PACKAGE as ENGINE
from tunec.targets.deepspeed.verify import named_by
from tunec.targets.huggingface.fsdp_row import CONFIG
from tunec.targets.huggingface.verify import SECONDS, auto_programs, derived_facts, run_of, settled
from tunec.targets.ms_swift.datasets import limited_name
from tunec.targets.ms_swift.fsdp import KEY as FSDP
from tunec.targets.ms_swift.packages import PACKAGE, RELEASES, by_rlhf

SCRIPT: Final = "tunec.targets.ms_swift.consumer"
FILE: Final = "ms-swift.yaml"
PARSER: Final = "swift parse_args"
_NAMED: Final = ("transformers", "peft", "accelerate", "trl")
_LIGER, _BNB = "liger-kernel", "bitsandbytes==0.50.2"


def requirements(case: Case) -> tuple[str, ...]:
    """The packages of a release, with those that the spec names or the plan needs."""
    dialect, software = case.dialect, case.software
    named = {name: str(dialect[name]) for name in _NAMED if name in dialect and name in software}
    pins = (pin.partition("==") for pin in choose(PACKAGE, str(case.version)).requirements)
    held = tuple(f"{name}=={named.get(name, release)}" for name, _, release in pins)
    engine = (f"{ENGINE}=={dialect[ENGINE]}",) if on_deepspeed(case.plan) else ()
    packed = (_BNB,) if case.plan.quantization.format != "none" else ()
    fused = case.plan.loss.path == "fused" and _LIGER in software
    liger = (f"{_LIGER}=={software[_LIGER]}",) if fused else ()
    return (*held, *engine, *packed, *liger)


def where(case: Case) -> Where:
    """The environment of a release. Raises EnvironmentUnavailable for one that is only read."""
    require_known(PACKAGE, case.version, RELEASES)
    return Where(PACKAGE, str(case.version), requirements(case))


def _ask(case: Case, _: Answers) -> Question:
    return {
        "verb": "resolve",
        "method": "rlhf" if by_rlhf(case.plan) else "sft",
        "yaml": _without_code(case),
        "files": {**named_by(case, FILE), **dict.fromkeys(_PLUGIN if _plugins(case) else (), "")},
        "config": dict(case.config or {"model_type": case.plan.model.family}),
        **run_of(case),
    }


_PLUGINS: Final = "external_plugins"
_PLUGIN: Final = ("plugin.py",)


def _plugins(case: Case) -> Json:
    return values_of(case, FILE).get(_PLUGINS)


def _without_code(case: Case) -> str:
    """The file, with an empty plugin instead of the user's, which the parser would run."""
    if not _plugins(case):
        return case.text(FILE)
    return json.dumps({**values_of(case, FILE), _PLUGINS: [*_PLUGIN]})


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    written, values = values_of(case, FILE), dict(answer["values"])
    engine = {"deepspeed": written["deepspeed"]} if values.get("deepspeed") else {}
    own = {_PLUGINS: _plugins(case)} if values.get(_PLUGINS) == [*_PLUGIN] else {}
    sharded = {FSDP: {key: values[key] for key in (FSDP, CONFIG)}} if values.get(FSDP) else {}
    found = {**settled(case, values), **values, **engine, **own, **sharded}
    return TranslatedAnswer(
        values=found,
        facts=(*derived_facts(case.plan, answer["derived"]), *_data(case, answer["sets"])),
        ignored=tuple(key for key in flat(written) if key.partition(".")[0] not in values),
    )


def _data(case: Case, sets: Mapping[str, Any]) -> Iterator[Fact]:
    """The names of data sets in the file, and how the program parses each."""
    for key, slot in (("dataset", "data.train"), ("val_dataset", "data.evaluation")):
        names: Any = values_of(case, FILE).get(key) or ()
        for name, read in zip(names, sets[key], strict=True):
            parts = [read["dataset"], read["subsets"], read["dataset_sample"]]
            path, most = limited_name(name)
            said = chosen(path)
            subsets = [said.config] if said.config else []
            yield Fact(slot, f"{key}.{name}", [said.path, subsets, most or None], parts)


PROGRAMS: Final = (
    Program(PARSER, FILE, SCRIPT, where, _ask, _hear, seconds=SECONDS),
    *auto_programs(SCRIPT, where, _ask),
)
