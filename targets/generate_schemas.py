"""Write the consumers' JSON Schemas and default tables from the consumers themselves.

`python -m tunec.targets.generate_schemas` rewrites `schemas/json/accelerate`, `axolotl`,
`deepspeed`, `huggingface`, `llamafactory`, `ms-swift`, `nemo-automodel`, `openrlhf`, `trl`,
`unsloth` and `verl`; with `--check` it writes nothing and fails if one of them differs. If a
consumer's environment is unavailable it prints why and exits with status 2.
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

import tunec.schemas
from tunec.compiler.consumers.environments import EnvironmentUnavailable, prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import LATER, ConsumerSet, releases
from tunec.targets.huggingface.methods import METHODS

FOLDER: Final = Path(tunec.schemas.__file__).parent / "json"
_CONSUMERS: Final = (
    *("accelerate", "axolotl", "deepspeed", "llamafactory", "ms-swift", "nemo-automodel"),
    *("openrlhf", "transformers", "trl", "unsloth", "verl"),
)
SCRIPTS: Final[Mapping[str, str]] = {
    name: f"tunec.targets.{name.replace('-', '_').replace('transformers', 'huggingface')}.consumer"
    for name in _CONSUMERS
}

_KNOWN: Final = (*itertools.chain.from_iterable(map(releases, SCRIPTS)), *LATER)

# The stem of the file for each class.
STEMS: Final[Mapping[str, str]] = {
    "TrainingArguments": "training_arguments",
    "Seq2SeqTrainingArguments": "seq2seq_training_arguments",
    "SFTConfig": "sft_config",
    "DPOConfig": "dpo_config",
    "GRPOConfig": "grpo_config",
    "KTOConfig": "kto_config",
    "RewardConfig": "reward_config",
    "RLOOConfig": "rloo_config",
    "GKDConfig": "gkd_config",
    "PPOConfig": "ppo_config",
    "LoraConfig": "lora_config",
    "BitsAndBytesConfig": "bits_and_bytes_config",
}
_WITH_DEFAULTS: Final = ("TrainingArguments", "SFTConfig", "LoraConfig")

_WITH_DEFAULT: Final = (
    *("axolotl", "llamafactory", "ms-swift", "nemo-automodel", "unsloth", "verl"),
)
"""Consumers with one schema for each release, which contains the defaults."""

_NAMING: Final = "ms-swift"
"""The consumer that selects models by name."""

_PROGRAMS: Final = ("train_sft", "train_dpo", "train_rm", "train_ppo_ray")
"""The programs of OpenRLHF whose flags have a schema."""

_OF_PARTS: Final = {"trl": ("method", METHODS), "openrlhf": ("program", _PROGRAMS)}
"""For each consumer whose parts have schemas: its term for a part, and the parts."""

_REWARDED: Final = "ppo_trainer"
"""verl's file for `main_ppo`, the program that trains with rewards."""

Question = Mapping[str, Any]
Documents = dict[str, Any]
"""The content of each file, by its path under FOLDER."""


class ConsumerAnswers(Struct, frozen=True):
    """The answers of one consumer release about itself."""

    known: ConsumerSet
    answers: Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with `--check` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tunec.targets.generate_schemas")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a file is stale"
    )
    options = parser.parse_args(arguments)
    try:
        texts = {path: text(content) for path, content in documents(tell_all()).items()}
    except EnvironmentUnavailable as unavailable:
        sys.stderr.write(f"not checked: {unavailable}\n")
        return 2
    stale = sorted(_stale(texts))
    if not options.check:
        _write(texts)
    sys.stderr.writelines(f"{'stale' if options.check else 'written'}: {path}\n" for path in stale)
    return 1 if options.check and stale else 0


def tell_all() -> list[ConsumerAnswers]:
    """Query each release, as many at a time as there are processors.

    Raises EnvironmentUnavailable.
    """
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(lambda each: tell(each, {}), _KNOWN))


def tell(known: ConsumerSet, extra: Mapping[str, Question]) -> ConsumerAnswers:
    """Query one release, in one process; `extra` are more questions by name."""
    questions = dict(_questions(known.consumer)) | dict(extra)
    answers = ask(prepare(known.requirements), SCRIPTS[known.consumer], list(questions.values()))
    return ConsumerAnswers(known, dict(zip(questions, answers, strict=True)))


def _questions(consumer: str) -> Iterator[tuple[str, Question]]:
    if consumer in ("accelerate", "deepspeed"):
        yield "schema", {"verb": "schema"}
        yield "defaults", {"verb": "defaults"}
        return
    if consumer in _WITH_DEFAULT:
        yield "schema", {"verb": "schema"}
        if consumer == _NAMING:
            yield "models", {"verb": "models"}
        if consumer == "verl":
            yield _REWARDED, {"verb": "schema", "base": _REWARDED}
        if consumer == "unsloth":
            yield "names", {"verb": "names"}
        return
    if consumer in _OF_PARTS:
        key, names = _OF_PARTS[consumer]
        for name in names:
            yield name, {"verb": "schema", key: name}
        return
    yield "automatic", {"verb": "automatic"}
    for name in STEMS:
        yield f"schema {name}", {"verb": "schema", "class": name}
    for name in _WITH_DEFAULTS:
        yield f"defaults {name}", {"verb": "defaults", "class": name}


def documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """Every generated file, from the answers of all known releases."""
    found = accelerate_documents(told) | deepspeed_documents(told)
    found |= huggingface_documents(told) | trl_documents(told)
    found |= schema_documents(told) | rewarded_documents(told) | model_documents(told)
    return found | unsloth_documents(told) | flag_documents(told)


def accelerate_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The schema of each known release, and one table of the values of a section without keys."""
    found: Documents = {"accelerate/defaults.json": {}}
    for each in told:
        if each.known.consumer == "accelerate":
            found[f"accelerate/{each.known.version}.json"] = each.answers["schema"]
            found["accelerate/defaults.json"][each.known.version] = each.answers["defaults"]
    return found


def deepspeed_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The schema of each minor release, and one table of the defaults of absent keys."""
    found: Documents = {"deepspeed/defaults.json": {}}
    for each in told:
        if each.known.consumer == "deepspeed":
            minor = ".".join(each.known.version.split(".")[:2])
            found[f"deepspeed/{minor}.json"] = each.answers["schema"]
            found["deepspeed/defaults.json"][minor] = each.answers["defaults"]
    return found


def huggingface_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The classes' schemas with their index, their defaults, and the keys that may be "auto"."""
    found: Documents = {"huggingface/automatic.json": {}}
    for each in told:
        if each.known.consumer == "transformers":
            found["huggingface/automatic.json"][each.known.version] = each.answers["automatic"]
            for name, stem in STEMS.items():
                _add_class(found, each, name, f"huggingface/{stem}")
    return found


def _add_class(found: Documents, told: ConsumerAnswers, name: str, stem: str) -> None:
    """Add a class's schema under its package's version; two consumer sets may share one schema."""
    schema = told.answers[f"schema {name}"]
    if schema is None:
        return
    version = schema["x-consumer"].split("==")[1]
    index = found.setdefault("huggingface/index.json", {}).setdefault(Path(stem).name, {})
    before = list(index.values())
    if before and _said(found[f"huggingface/{before[-1]}"]) == _said(schema):
        index[version] = before[-1]
    else:
        index[version] = f"{Path(stem).name}-{version}.json"
        found[f"{stem}-{version}.json"] = schema
    if name in _WITH_DEFAULTS:
        table = found.setdefault(f"{stem}-defaults.json", {})
        table[version] = told.answers[f"defaults {name}"]


def trl_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The schema of each script's file, with an index from releases to schemas."""
    found: Documents = {"trl/index.json": {method: {} for method in METHODS}}
    for each in told:
        for method in METHODS if each.known.consumer == "trl" else ():
            schema = each.answers[method]
            if schema is not None:
                name = f"{method}-{each.known.version}.json"
                found["trl/index.json"][method][each.known.version] = name
                found[f"trl/{name}"] = schema
    return found


def schema_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The schema of each known release of the consumers that have a single schema."""
    return {
        f"{each.known.consumer}/{_stem(each.known)}.json": each.answers["schema"]
        for each in told
        if each.known.consumer in _WITH_DEFAULT
    }


def _stem(known: ConsumerSet) -> str:
    return f"later/{known.version}" if known in LATER else known.version


def rewarded_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The schema of verl's file for `main_ppo` in each release."""
    return {
        f"verl/{_REWARDED}/{each.known.version}.json": each.answers[_REWARDED]
        for each in told
        if each.known.consumer == "verl"
    }


def flag_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The schema of the flags of each OpenRLHF program in each release."""
    return {
        f"openrlhf/{program}/{each.known.version}.json": each.answers[program]
        for each in told
        if each.known.consumer == "openrlhf"
        for program in _PROGRAMS
    }


def model_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The model names that ms-swift loads, each with the release that introduced it."""
    found: dict[str, dict[str, str]] = {}
    for each in told:
        if each.known.consumer == _NAMING:
            models = each.answers["models"]
            for name in sorted({*found, *models}):
                now, before = models.get(name, ""), found.setdefault(name, {})
                if now != next(reversed(before.values()), ""):
                    before[each.known.version] = now
    return {f"{_NAMING}/models.json": found} if found else {}


def unsloth_documents(told: Sequence[ConsumerAnswers]) -> Documents:
    """The repository that each release loads for a name: the first in full, then differences."""
    found: dict[str, Any] = {}
    before: Mapping[str, Any] = {}
    for each in told:
        if each.known.consumer == "unsloth":
            now = {name: _in_lower_case(pair) for name, pair in each.answers["names"].items()}
            gone = dict.fromkeys((name for name in before if name not in now), (None, None))
            changed = {name: pair for name, pair in now.items() if before.get(name) != pair}
            found[each.known.version] = {**changed, **gone}
            before = now
    return {"unsloth/names.json": found} if found else {}


def _in_lower_case(pair: Sequence[str | None]) -> list[str | None]:
    """Names in lower case: the Hub ignores case, and releases spell names differently."""
    return [name and name.lower() for name in pair]


def _said(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema without its release: a release that changed nothing gets no file."""
    return {
        key: value
        for key, value in schema.items()
        if key not in ("title", "x-consumer", "x-beside")
    }


def text(content: Any) -> str:
    """A document as its file's text, identical for identical content."""
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def _stale(texts: Mapping[str, str]) -> Iterator[str]:
    for path, text in texts.items():
        file = FOLDER / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            yield path
    yield from (path for path in _present(texts) if path not in texts)


def _present(texts: Mapping[str, str]) -> Iterator[str]:
    for folder in sorted({path.split("/")[0] for path in texts}):
        yield from (f"{folder}/{file.name}" for file in (FOLDER / folder).glob("*.json"))


def _write(texts: Mapping[str, str]) -> None:
    for path in list(_present(texts)):
        if path not in texts:
            (FOLDER / path).unlink()
    for path, text in texts.items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
