"""How LLaMA-Factory's parser is run on the files, and how its answers are read."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.releases import row_at
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
from tunec.schemas.dotted_paths import flat
from tunec.targets.deepspeed.reader import PACKAGE as ENGINE
from tunec.targets.deepspeed.verify import named_by
from tunec.targets.huggingface.verify import SECONDS, auto_programs, derived_facts, run_of, settled
from tunec.targets.llamafactory.datasets import FOLDER, INFO
from tunec.targets.llamafactory.packages import (
    PACKAGE,
    RELEASES,
    TRAINER,
    WRITTEN,
    installed_releases,
)

SCRIPT: Final = "tunec.targets.llamafactory.consumer"
FILE: Final = "llamafactory.yaml"
PARSER: Final = "llamafactory get_train_args"
_BELOW: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("0.9.3", ("tokenizers==0.21.1", "huggingface_hub==0.36.2", "datasets==3.6.0", "trl==0.9.6")),
    ("0.9.4", ("tokenizers==0.22.2", "huggingface_hub==0.36.2", "datasets==4.0.0", "trl==0.24.0")),
)
_BESIDE: Final = ("httpx==0.28.1", "httpcore==1.0.9", "omegaconf==2.4.0")
_LIGER: Final = "liger-kernel"
KNOWN: Final = [each for each in RELEASES if Version(each) >= Version(WRITTEN)]
"""The releases whose packages are known."""


def below(version: Version) -> tuple[str, ...]:
    """Exact pins of a release and its companions, whatever a spec sets."""
    older = row_at(version, _BELOW)
    usual = installed_releases(version)
    above = (f"{name}=={usual[name]}" for name in ("accelerate", "peft"))
    return (f"{PACKAGE}=={version}", *above, *older, *_BESIDE)


def requirements(case: Case) -> tuple[str, ...]:
    """Exact pins of a release's companions, as far as its parser imports or checks them."""
    held = (TRAINER, *((ENGINE,) if on_deepspeed(case.plan) else ()))
    fused = case.plan.loss.path == "fused" and _LIGER in case.software
    liger = (f"{_LIGER}=={case.software[_LIGER]}",) if fused else ()
    above = (f"{name}=={case.dialect[name]}" for name in held)
    return (*below(case.version), *above, *liger)


def where(case: Case) -> Where:
    """The environment of the release. Raises EnvironmentUnavailable for one that is only read."""
    require_known(PACKAGE, case.version, KNOWN)
    return Where(PACKAGE, str(case.version), requirements(case))


# ── the YAML ─────────────────────────────────────────────────────────────────────────────────────


def _ask(case: Case, _: Answers) -> Question:
    files = named_by(case, FILE)
    if INFO in case.delivered:
        files[f"{FOLDER}/{INFO}"] = case.text(INFO)
    return {"verb": "resolve", "yaml": case.text(FILE), "files": files, **run_of(case)}


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    found = settled(case, answer["values"])
    written = flat(values_of(case, FILE))
    kept = {key: _joined(key, found[key]) for key in written if key in found}
    if case.plan.data.packing:
        kept["cutoff_len"] = found["cutoff_len"] + _AFTER
    return TranslatedAnswer(
        values={**found, **kept},
        facts=derived_facts(case.plan, answer["derived"]),
        ignored=tuple(key for key in written if key.partition(".")[0] not in answer["values"]),
    )


_AFTER: Final = 1
"""The token by which padding extends a packed row: hparams/data_args.py `__post_init__`."""


_SPLIT: Final = ("dataset", "eval_dataset", "lora_target", "additional_target")
"""Keys that the classes split into a list: hparams/data_args.py, finetuning_args.py."""


def _joined(key: str, found: Json) -> Json:
    """A list as it is written in the file: names separated by commas."""
    return ",".join(map(str, found)) if key in _SPLIT and isinstance(found, list) else found


# ── the data sets ────────────────────────────────────────────────────────────────────────────────


def _hear_sets(case: Case, answer: Any) -> TranslatedAnswer:
    """Each data set as the program passes it to its loader."""
    written: Mapping[str, Any] = values_of(case, INFO)
    sets: Mapping[str, Any] = answer["sets"]
    values = {name: {**written[name], **_place(each)} for name, each in sets.items()}
    read = (each for name in written for each in _read(name, written[name], sets.get(name, {})))
    return TranslatedAnswer(values=values, facts=tuple(read))


def _place(described: Mapping[str, Json]) -> Mapping[str, Json]:
    key = "file_name" if described["load_from"] == "file" else "hf_hub_url"
    return {key: described["dataset_name"]}


def _read(name: str, said: Mapping[str, Any], described: Mapping[str, Json]) -> Iterator[Fact]:
    """The facts about a data set: what the file sets, and what the program read."""
    told = {key: each for key, each in said.items() if not isinstance(each, Mapping)}
    told |= {**said["columns"], **said.get("tags", {})}
    slot = "data.evaluation" if name == "evaluation" else "data.train"
    for key, each in told.items():
        if key in described:
            yield Fact(slot, f"{name}.{key}", each, described[key])


PROGRAMS: Final = (
    Program(PARSER, FILE, SCRIPT, where, _ask, _hear, seconds=SECONDS),
    Program(
        "llamafactory get_dataset_list", INFO, SCRIPT, where, _ask, _hear_sets, seconds=SECONDS
    ),
    *auto_programs(SCRIPT, where, _ask),
)
