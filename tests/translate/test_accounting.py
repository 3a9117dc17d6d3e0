"""Random files of every pair of dialects: what was read is in the new files, or is named.

The new files are read back as their own programs' files are, beside the text of what was said.
"""

import json
from itertools import product

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.hypothesis_profiles import share

from tunec.compiler.consumers.moved_keys import MOVED
from tunec.compiler.emit import schema
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.values import show
from tunec.compiler.lints.environment import environment_of
from tunec.compiler.read import found_plain, read
from tunec.compiler.translate.translate import translate_texts
from tunec.targets.registry import TARGETS

READABLE = TARGETS.readable()
DATA = {"model_name_or_path": "Qwen/Qwen2.5-0.5B", "output_dir": "out"}
FILES = {
    "huggingface": (
        "training_args.yaml",
        ("4.44.2", "4.57.6", "5.23.0"),
        {"output_dir": "out", "per_device_train_batch_size": 2},
    ),
    "trl": (
        "sft.yaml",
        ("0.17.0", "0.27.2", "1.16.0"),
        {**DATA, "dataset_name": "trl-lib/Capybara", "max_length": 512, "packing": False},
    ),
    "deepspeed": (
        "ds_config.json",
        ("0.14.5", "0.18.9", "0.19.8"),
        {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}},
    ),
    "accelerate": (
        "accelerate.yaml",
        ("0.30.1", "1.4.0", "1.15.0"),
        {"distributed_type": "MULTI_GPU", "num_machines": 1, "num_processes": 8},
    ),
    "llamafactory": (
        "llamafactory.yaml",
        ("0.9.3", "0.9.5"),
        {**DATA, "stage": "sft", "finetuning_type": "lora", "dataset": "x", "template": "qwen"},
    ),
    "axolotl": (
        "axolotl.yaml",
        ("0.13.2", "0.19.0"),
        {
            "base_model": "Qwen/Qwen2.5-0.5B",
            "datasets": [{"path": "tatsu-lab/alpaca"}],
            "micro_batch_size": 1,
            "num_epochs": 1,
            "sequence_len": 512,
        },
    ),
}
"""By the program: its file, releases, and what the file says in any case."""
WRITTEN = ("huggingface", "trl", "deepspeed", "accelerate")
PAIRS = tuple(product(FILES, WRITTEN))
OWN = ("deepspeed", "fsdp", "fsdp_config", "deepspeed_config", "accelerator_config", "datasets")
"""Keys that hold other files, or mappings that a random value would not be."""


def values(field):
    """Values that a schema admits at a key: leaves, and lists of words."""
    if "const" in field:
        return st.just(field["const"])
    if "enum" in field:
        return st.sampled_from(field["enum"])
    for word in ("anyOf", "oneOf"):
        if word in field:
            return st.one_of([values(each) for each in field[word]])
    match field.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(1, 9)
        case "number":
            return st.sampled_from((0.25, 0.5, 1.0, 2.0))
        case "string":
            return st.sampled_from(("one", "two"))
        case "array":
            return st.just(["one"])
        case _:
            return st.none()


@st.composite
def cases(draw, one):
    """A release of a program, and a file for it: a few keys beside those that make it one."""
    name, releases, always = FILES[one]
    release = draw(st.sampled_from(releases))
    target = READABLE[one]
    (file,) = (each for each in target.files if each.name == name)
    known = schema(file.schema(target.dialect(target.release(release))))["properties"]
    free = sorted(known.keys() - always.keys() - {*OWN})
    keys = draw(st.lists(st.sampled_from(free), min_size=1, max_size=6, unique=True))
    said = {key: draw(values(known[key])) for key in keys}
    return name, release, {**always, **said}


def translated(one, name, release, document, other):
    text = json.dumps(document) if name.endswith("json") else yaml.safe_dump(document)
    around = environment_of(READABLE, readers=(f"{one}@{release}",), world=8)
    return translate_texts({name: text}, (TARGETS.resolve(other),), READABLE, around)


def told(result):
    """All that is said, as one text."""
    return json.dumps([each.to_json() for each in result.diagnostics])


def renames(key, value):
    """A key under the names of other releases, with what it holds there."""
    yield key, value
    for moved in (each for table in MOVED.values() for each in table):
        if moved.old == key and moved.new:
            yield moved.new, moved.words(value)
        if moved.new == key and moved.back is not None:
            yield moved.old, moved.back(value)


def leaves(document):
    """Keys that hold no others, by dotted path."""
    found = found_plain(document)
    return {key: each.value for key, each in found.items() if not isinstance(each.value, dict)}


def said_by(target, files, release):
    """What files say of slots, or leave to their program."""
    documents = {name: found_plain(values) for name, values in files.items()}
    return {each.slot: each for each in reversed(read(target, documents, release))}


def is_in(key, value, files):
    """Whether a file holds a key, under any of its names."""
    names = [(name, held) for name, held in renames(key, value) if held is not None]
    there = [leaves(each) | each for each in files.values()]
    return any(each.get(name) == held for each in there for name, held in names)


def slots_of(one, name, release, key):
    """The slots of which a key is told to be one, in a release."""
    target = READABLE[one]
    (file,) = (each for each in target.files if each.name == name)
    rows = [each for each in file.entries if each.holds_in(target.dialect(release))]
    return {slot for row in rows if key in row.keys for slot in row.slots}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_every_key_is_written_or_named(one, other):
    @share(len(PAIRS) // 4)
    @given(cases(one))
    def holds(case):
        name, release, document = case
        result = translated(one, name, release, document, other)
        text = told(result)
        accounted = {key for each in result.accounts for key, _ in renames(each.read.key, None)}
        for key, value in leaves(document).items():
            holders = {key, *(key[:at] for at, mark in enumerate(key) if mark == ".")}
            assert not holders.isdisjoint(accounted), key
            if not result.ok or value is None or any(each in text for each in holders):
                continue
            files = {each.name: each.values for each in result.artifacts[other]}
            found = is_in(key, value, files) or is_carried(case, one, key, files)
            assert found or is_said(case, one, other, key, files, text), key

    holds()


def is_carried(case, one, key, files):
    """Whether a file holds what the reader's own table makes of a key for another program."""
    name, _, document = case
    (file,) = (each for each in READABLE[one].files if each.name == name)
    there = leaves(document)
    made = [carry.write(there) for carry in file.carries if key in carry.keys]
    held = [leaves(each) for each in files.values()]
    return any(each and any(each.items() <= h.items() for h in held) for each in made)


def is_said(case, one, other, key, files, text):
    """Whether every slot that a key says is said by the new files, or is named."""
    name, release, document = case
    source, target = READABLE[one], TARGETS[other]
    own = source.release(release)
    before = said_by(source, {name: document}, own)
    after = said_by(target, files, target.release(target.latest))
    mine = [before[slot] for slot in slots_of(one, name, own, key) if slot in before]
    mine = [each for each in mine if each.rank is Rank.OBSERVED]
    return bool(mine) and all(
        each.slot in text
        or (each.slot in target.cannot and each.value in target.cannot[each.slot].harmless)
        or (
            each.slot in after
            and show(each.slot, after[each.slot].value) == show(each.slot, each.value)
        )
        for each in mine
    )


GONE_BEFORE = {
    "label_names": ["labels"],
    "ddp_find_unused_parameters": False,
    "remove_unused_columns": False,
    "average_tokens_across_devices": False,
    "ddp_timeout": 3600,
}


@pytest.mark.parametrize(("key", "value"), GONE_BEFORE.items(), ids=str)
def test_keys_that_only_follow_are_kept_where_nothing_tells_what_they_follow_from(key, value):
    document = {**FILES["huggingface"][2], key: value}
    result = translated("huggingface", "training_args.yaml", "4.57.6", document, "huggingface")
    assert result.ok
    assert is_in(key, value, {each.name: each.values for each in result.artifacts["huggingface"]})


def test_what_accelerate_writes_for_tpus_is_no_obstacle():
    document = {
        **FILES["accelerate"][2],
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": 3, "gradient_accumulation_steps": 1},
        "downcast_bf16": "no",
        "tpu_env": [],
        "tpu_use_cluster": False,
        "tpu_use_sudo": False,
    }
    result = translated("accelerate", "accelerate.yaml", "1.15.0", document, "deepspeed")
    assert not [each for each in result.diagnostics if each.id == "E0908"]
