"""Text, headers and faults of emission, whatever the target."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from tests.plans import DDP, plan_of

from tunec.compiler.emit import emit
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.read import found_in, found_plain, read, settle
from tunec.compiler.releases import Package
from tunec.compiler.rendering import render_json, render_yaml
from tunec.compiler.target import Entry, constant, derived, fixed, named, same
from tunec.schemas.frozen import replace
from tunec.targets.registry import TARGETS

HUGGINGFACE, LAUNCH = TARGETS["huggingface"], TARGETS["launch"]
HEADER = ("tunec 0.1.0", "spec 1234, plan 5678")
LATEST = Version("5.23.0")


def texts(target, plan, version=LATEST):
    artifacts, _ = emit(target, plan, version, header=HEADER)
    return {each.name: each.text for each in artifacts}


# ── text ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_header_stands_where_a_format_has_comments():
    found = texts(HUGGINGFACE, plan_of())
    comment = "# tunec 0.1.0\n# spec 1234, plan 5678\n"
    assert found["training_args.yaml"].startswith(comment)
    assert "tunec" not in found["ds_config.json"]
    script = texts(LAUNCH, plan_of(), Version(LAUNCH.latest))["launch.sh"]
    assert script.startswith("#!/usr/bin/env bash\n" + comment)


def test_files_end_in_one_newline_and_json_is_indented_by_two():
    for target, version in ((HUGGINGFACE, LATEST), (LAUNCH, Version(LAUNCH.latest))):
        for text in texts(target, plan_of(), version).values():
            assert text.endswith("\n")
            assert not text.endswith("\n\n")
    assert render_json({"a": [1]}) == '{\n  "a": [\n    1\n  ]\n}\n'


def test_json_that_no_reader_takes_is_not_written():
    with pytest.raises(ValueError, match="Out of range"):
        render_json({"a": float("inf")})


@pytest.mark.parametrize(
    "value", [1e-5, 5e7, 1e16, 1e-300, 0.1, 1.0, "no", "1e-5", "null", "~", "on"]
)
def test_yaml_1_1_types_every_scalar_as_it_was_meant(value):
    text = render_yaml({"key": value})
    back = yaml.safe_load(text)["key"]
    assert back == value
    assert type(back) is type(value)
    node, faults = parse(text, "x.yaml", "yaml")
    assert not faults
    assert found_in(node)["key"].value == value


def test_a_list_that_occurs_twice_is_written_twice():
    shared = ["a"]
    assert "*id" not in render_yaml({"one": shared, "two": shared})


@pytest.mark.parametrize("other", [1, "1", 1.0, True, {"in": [1]}, "\\ \x07"])
def test_entries_that_are_kept_are_those_of_the_whole(other):
    whole = {"a": {"b": [1, {"c": "no"}], "d": {}}, "e": [], "k" * 140: "x: y", "other": other}
    for _ in range(2):
        assert render_yaml(whole) == yaml.dump(
            whole, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=2**31 - 1
        )


def test_a_script_is_written_as_a_block():
    assert render_yaml({"a": {"run": 'cd x\nexec "$@" \\\n  --b\n'}, "c": 1}) == (
        'a:\n  run: |\n    cd x\n    exec "$@" \\\n      --b\nc: 1\n'
    )


@pytest.mark.parametrize(
    "text",
    ["\n", "a\n\n", "  a\nb", "a \nb\n", "\ta\n", "a\n\x07", "\n a", "é\u2028\n", "#a\n---\n"],
)
def test_a_text_of_several_lines_comes_back(text):
    assert yaml.safe_load(render_yaml({"key": text, "next": [text]})) == {
        "key": text,
        "next": [text],
    }


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


def test_a_value_without_a_word_is_an_error_with_slot_and_value():
    """The bf16 optimizer is SimpleTuner's: no name of the Trainer's means it."""
    plan = plan_of(DDP, {"optimizer.name": "adamw_bf16", "optimizer.kernel": "own"})
    _, diagnostics = emit(HUGGINGFACE, plan, Version("4.40.2"))
    fault = next(
        each for each in diagnostics if each.labels and each.labels[0].path == "optimizer.name"
    )
    assert (fault.id, fault.severity) == ("E0901", "error")
    assert fault.message == (
        "huggingface (transformers 4.40.2) cannot express optimizer.name adamw_bf16"
    )
    assert "training_args.yaml" in fault.notes[0]


def test_a_value_that_only_a_cannot_knows_is_an_error_too():
    _, diagnostics = emit(HUGGINGFACE, plan_of({"adapter.frozen": ("vision",)}), LATEST)
    assert {"E0901"} == {each.id for each in diagnostics if each.severity == "error"}
    assert "no key of these files freezes" in diagnostics[-1].notes[0]


def test_a_value_of_the_wrong_type_for_the_reader_is_an_error_with_its_key():
    """PEFT annotates lora_alpha as a whole number."""
    artifacts, diagnostics = emit(HUGGINGFACE, plan_of({"adapter.alpha": 12.5}), LATEST)
    fault = next(each for each in diagnostics if each.id == "E0904")
    assert fault.labels[0].path == "lora_alpha"
    assert "12.5 is not of type 'integer'" in fault.message
    assert artifacts, "the files are there to be looked at"


def test_a_version_outside_the_range_names_the_range():
    artifacts, (fault,) = emit(HUGGINGFACE, plan_of(), Version("3.5.1"))
    assert artifacts == ()
    assert fault.message == "the target huggingface does not know transformers 3.5.1"
    assert ">=4.40" in fault.notes[0]


def test_a_named_companion_that_is_no_version_is_a_fault_and_no_crash():
    _, (fault,) = emit(HUGGINGFACE, plan_of(), LATEST, software={"deepspeed": "newest"})
    assert fault.id == "E0902"


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────

PLAN = plan_of()


def test_same_keeps_a_value_and_leaves_none_out():
    row = same("seed", "runtime.seed", "x")
    assert row.write(PLAN) == {"seed": 7}
    assert row.read({"seed": 3}) == {"runtime.seed": 3}
    none = same("limit", "schedule.keep_checkpoints", "x", absent=(("0", None),))
    changed = replace(PLAN, schedule=replace(PLAN.schedule, keep_checkpoints=None))
    assert none.write(changed) == {}
    assert none.defaults_at(Version("1")) == {"schedule.keep_checkpoints": None}


def test_named_tells_true_from_one():
    row = named("flag", "states.master_weights", {True: 1, False: 0}, "x")
    assert row.read({"flag": 1}) == {"states.master_weights": True}
    assert row.read({"flag": True}) == {}


def test_rows_without_slots_say_nothing():
    assert constant("debug", False, "x").write(PLAN) == {"debug": False}
    assert derived("double", lambda plan: 2 * plan.batch.micro, "x").write(PLAN) == {"double": 4}
    assert derived("none", lambda _: None, "x").write(PLAN) == {}
    assert fixed("adapter.bias", "none", "x").keys == ()


def row_of(slot: str) -> Entry:
    return same("key", slot, "x")


@pytest.mark.parametrize(
    ("slot", "given", "settled"),
    [
        ("batch.micro", 2, 2),
        ("batch.micro", 5e8, 500_000_000),
        ("batch.micro", 2.5, None),
        ("batch.micro", True, None),
        ("batch.micro", "2", None),
        ("optimizer.learning_rate", 1, 1.0),
        ("optimizer.learning_rate", "5e-5", None),
        ("optimizer.learning_rate", float("nan"), None),
        ("zero.pin_memory", True, True),
        ("zero.pin_memory", 1, None),
        ("schedule.kind", "cosine", "cosine"),
        ("schedule.kind", "polynomial", "polynomial"),
        ("schedule.kind", "parabolic", None),
        ("adapter.targets", ["a", "b"], ("a", "b")),
        ("adapter.targets", "a|b", "a|b"),
        ("adapter.targets", [1], None),
        ("devices.capability", "8.0", "8.0"),
    ],
)
def test_a_value_settles_a_slot_only_as_the_slot_s_type(slot, given, settled):
    """MC014: a number in quotes is no number to the consumers either."""
    found = settle(row_of(slot), {"key": given})
    assert found == ({} if settled is None else {slot: settled})
    if settled is not None:
        assert type(found[slot]) is type(settled)


def test_absent_keys_say_what_the_release_does():
    """MC036: gradient clipping moved from 0 to 1 with 0.19.3."""
    target = TARGETS["deepspeed"]
    documents = {"ds_config.json": found_plain({"train_micro_batch_size_per_gpu": 1})}

    def clipping(version: str):
        found = read(target, documents, Version(version))
        return next(each for each in found if each.slot == "optimizer.max_grad_norm")

    old, new = clipping("0.18.9"), clipping("0.19.8")
    assert (old.value, new.value) == (0.0, 1.0)
    assert new.rank is Rank.CONSUMER
    assert new.reason == "gradient_clipping is absent: the default of deepspeed 0.19.8"


def test_a_found_key_carries_its_place():
    node, _ = parse('{\n  "gradient_clipping": 0.5\n}', "ds.json", "json")
    found = read(TARGETS["deepspeed"], {"ds_config.json": found_in(node)}, Version("0.19.8"))
    clipping = next(each for each in found if each.slot == "optimizer.max_grad_norm")
    assert str(clipping.span) == "ds.json:2:24"


def test_a_partial_version_is_its_newest_release():
    package = Package(SpecifierSet(">=1,<2"), ("1.0.3", "1.1.7", "1.2.0"))
    assert package.release("1.1") == Version("1.1.7")
    assert package.release("1") == Version("1.2.0")
    assert package.release("1.1.2") == Version("1.1.2")
    assert package.release("1.9") == Version("1.9")
    assert package.latest == "1.2.0"


def test_values_are_what_the_text_says():
    parsers = {file.name: file.parse for file in HUGGINGFACE.files}
    for artifact in emit(HUGGINGFACE, plan_of(), LATEST)[0]:
        load = json.loads if artifact.format == "json" else yaml.safe_load
        load = parsers[artifact.name] or load
        assert load(artifact.text) == artifact.values


KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True)
LINES = st.characters(exclude_characters="\x85\u2028\u2029", exclude_categories=["Cs"])
"""Without the line ends that PyYAML does not carry through; a spec must not hold them either."""
WORDS = st.text(LINES, max_size=20) | st.sampled_from(
    (
        "no",
        "1e-4",
        "5e8",
        "a: b",
        "# x",
        "- y",
        " lead",
        "trail ",
        "a\nb",
        "x\n",
        "\t",
        "~",
        "",
        "=",
    )
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_yaml_is_the_same_with_and_without_the_c_library(values):
    from tunec.compiler import rendering

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "_LibDumper", None)
        plain = rendering.render_yaml(values)
    assert rendering.render_yaml(values) == plain
    assert yaml.safe_load(plain) == values
