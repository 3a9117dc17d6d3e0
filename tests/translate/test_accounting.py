"""Random files of every pair of dialects: what was read is in the new files, or is named.

The new files are read back as their own programs' files are, beside the text of what was said.
"""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hypothesis_profiles import share
from tests.plans import BASE
from tests.translate.random_files import READABLE, SOURCES, files

from tunec.compiler.consumers.moved_keys import MOVED
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.values import show
from tunec.compiler.lints.environment import environment_of
from tunec.compiler.read import found_plain, read
from tunec.compiler.translate.translate import _OF_THE_MODEL, translate_texts
from tunec.schemas.dotted_paths import nested
from tunec.targets.registry import TARGETS

WORLD = 8
TRIES = 4
TOGETHER = ("schedule.kind", "schedule.steps", "schedule.warmup_steps", "schedule.warmup_share")
"""Slots of a schedule, which programs join in ways of their own: a constant rate that rises."""
NAMED = re.compile(r"--set ([a-z_]+\.[a-z_]+)=")
LEFT = re.compile(r"--without[ =]'?([^\s',]+)")


def source_of(reader):
    """The first kind of file of a reader."""
    return next(each for each in SOURCES if each.reader == reader)


def translated(source, release, values, other, *, helped=True):
    """What becomes of a file; where it is refused, once more with what the messages ask for."""
    texts = {source.called: source.text(values)}
    around = environment_of(READABLE, readers=(f"{source.reader}@{release}",), world=WORLD)
    asked, given, without = TARGETS.resolve(other), {}, set()
    for _ in range(TRIES):
        pins = [Definition(*each, Rank.PIN, "command line", "given") for each in given.items()]
        result = translate_texts(texts, (asked,), READABLE, around, given=pins, without=without)
        before = len(given) + len(without)
        for each in result.diagnostics if helped else ():
            if each.severity == "error" and each.id == "E0908":
                without |= {*LEFT.findall(each.help or "")}
            elif each.severity == "error":
                slots = [slot for slot in NAMED.findall(each.help or "") if slot in BASE]
                given |= {slot: asked[0].requires.get(slot, BASE[slot]) for slot in slots}
        if result.ok or before == len(given) + len(without):
            break
    return result, given, without


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


def slots_of(source, release, key):
    """The slots of which a key is told to be one, in a release."""
    reader = READABLE[source.reader]
    dialect = reader.dialect(reader.release(release))
    rows = [each for each in source.table.entries if each.holds_in(dialect)]
    return {slot for row in rows if key in row.keys for slot in row.slots}


def is_carried(source, values, key, other, files):
    """Whether a file holds what a table of either side makes of a key for the other program."""
    there = leaves(nested(values))
    every = (*source.table.carries, *(each for file in TARGETS[other].files for each in file.takes))
    made = [
        carry.write({name: there[name] for name in (*carry.keys, *carry.beside) if name in there})
        for carry in every
        if key in carry.keys
    ]
    held = [leaves(each) for each in files.values()]
    return any(each and any(each.items() <= h.items() for h in held) for each in made)


def is_said(source, release, values, other, key, files, text):
    """Whether every slot that a key says is said by the new files, or is named."""
    reader, target = READABLE[source.reader], TARGETS[other]
    own = reader.release(release)
    before = said_by(reader, {source.file: nested(values)}, own)
    after = said_by(target, files, target.release(target.latest))
    mine = [before[slot] for slot in slots_of(source, release, key) if slot in before]
    mine = [each for each in mine if each.rank is Rank.OBSERVED]
    return bool(mine) and all(
        each.slot in text
        or each.value in (None, ())
        or each.slot in _OF_THE_MODEL
        or (each.slot in TOGETHER and not after.keys().isdisjoint(TOGETHER))
        or each.slot == "states.autocast"  # DeepSpeed casts the module itself
        or (each.slot in target.cannot and each.value in target.cannot[each.slot].harmless)
        or (each.slot in after and is_alike(each.slot, after[each.slot].value, each.value))
        for each in mine
    )


def is_alike(slot, one, other):
    """Whether two values of a slot are the same: 1 and 1.0 are."""
    return one == other or show(slot, one) == show(slot, other)


def bare(key):
    """A key without what marks it as a flag, which some readers leave out."""
    return key.removeprefix("flags.").removeprefix("--")


def unaccounted(source, release, values, other):
    """Keys of a file that are nowhere in the new files, and of which nothing is said."""
    result, given, without = translated(source, release, values, other)
    text, without = told(result), {*map(bare, without)}
    accounts = {
        bare(name): each for each in result.accounts for name, _ in renames(each.read.key, None)
    }
    written = {each.name: each.values for each in result.artifacts.get(other, ())}
    for key, value in leaves(nested(source.written(values))).items():
        if not result.ok or value is None or slots_of(source, release, key) & given.keys():
            continue
        names = {bare(name) for name, _ in renames(key, value)}
        names |= {name[:at] for name in names for at, mark in enumerate(name) if mark == "."}
        account = next((accounts[name] for name in names if name in accounts), None)
        if account is None:
            yield key
        elif names.isdisjoint(without) and not any(each in text for each in names):
            found = is_in(bare(key), value, written) or is_carried(
                source, values, key, other, written
            )
            if account.outcome == "kept":
                found = found or is_somewhere(names, value, written)
            else:
                found = found or not account.read.slots
            if not found and not is_said(source, release, values, other, key, written, text):
                yield key


def is_somewhere(names, value, written):
    """Whether a file holds a key that was kept, in whatever section."""
    lasts = {name.rpartition(".")[2] for name in names}
    found = {key: each for held in written.values() for key, each in leaves(held).items()}
    held = (each for key, each in found.items() if key.rpartition(".")[2] in lasts)
    return any(each in (value, [value]) or [each] == value for each in held)


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: f"{each.reader}-{each.called}")
def test_every_key_is_written_or_named(source):
    @share(len(SOURCES) // 4)
    @given(files(source), st.sampled_from(TARGETS.names()))
    def holds(file, other):
        assert not [*unaccounted(source, *file, other)]

    holds()


GONE_BEFORE = {
    "label_names": ["labels"],
    "ddp_find_unused_parameters": False,
    "remove_unused_columns": False,
    "average_tokens_across_devices": False,
    "ddp_timeout": 3600,
}


@pytest.mark.parametrize(("key", "value"), GONE_BEFORE.items(), ids=str)
def test_keys_that_only_follow_are_kept_where_nothing_tells_what_they_follow_from(key, value):
    source = source_of("huggingface")
    values = {**source.always, key: value}
    result, _, _ = translated(source, "4.57.6", values, "huggingface", helped=False)
    assert result.ok
    assert is_in(key, value, {each.name: each.values for each in result.artifacts["huggingface"]})


def test_what_accelerate_writes_for_tpus_is_no_obstacle():
    source = source_of("accelerate")
    values = {
        **source.always,
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": 3, "gradient_accumulation_steps": 1},
        "downcast_bf16": "no",
        "tpu_env": [],
        "tpu_use_cluster": False,
        "tpu_use_sudo": False,
    }
    result, _, _ = translated(source, "1.15.0", values, "deepspeed", helped=False)
    assert not [each for each in result.diagnostics if each.id == "E0908"]


def test_a_run_of_which_nothing_is_written_is_an_error(tunec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--model Qwen/Qwen3-8B --dataset a.jsonl --learning_rate 1e-4"
    Path("t.sh").write_text(f"python swift/cli/pt.py {words}\n", "utf-8")
    result = tunec("translate", "t.sh", "--to", "trl")
    assert result.code == 1
    assert "the files set nothing that trl can express" in result.err


@pytest.mark.parametrize("target", ["trl", "spec"])
def test_a_folder_is_a_fault_in_json_too(tunec, tmp_path, target):
    result = tunec("translate", tmp_path, "--to", target, "--format", "json")
    assert result.code == 1
    (fault,) = json.loads(result.out)["diagnostics"]
    assert fault["message"] == f"{tmp_path} is a folder"
