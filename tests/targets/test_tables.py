"""The house rules of targets: every slot is covered, every row has a source, versions differ."""

import subprocess
import sys

import pytest
from packaging.version import Version

from tunec.compiler.ir.extra import SLOT as EXTRA
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Entry, Target
from tunec.targets.registry import TARGETS, UnknownTarget

RELEASES = [
    pytest.param(name, release, id=f"{name}@{release}")
    for name in TARGETS
    for release in TARGETS[name].releases
]


def dialect_of(target: Target, release: str):
    return target.dialect(Version(release))


@pytest.mark.parametrize(("name", "release"), RELEASES)
def test_rows_and_cannot_cover_every_slot(name, release):
    target = TARGETS[name]
    covered = target.sayable(dialect_of(target, release)) | {*target.cannot, EXTRA}
    assert set(SLOTS) == covered


@pytest.mark.parametrize("name", TARGETS)
def test_every_row_has_a_source_and_known_slots(name):
    target = TARGETS[name]
    for file in target.files:
        for entry in file.entries:
            assert entry.source.strip(), entry.keys
            assert set(entry.slots) <= set(SLOTS), entry.keys
            assert entry.package in ("", target.package, *target.beside)
            assert entry.keys or entry.slots, "a row must tie something"
    for slot, cannot in target.cannot.items():
        assert cannot.reason.strip(), slot


BY_PATCH = {"llamafactory", "openrlhf", "unsloth", "verl"}
"""Packages whose patch releases change keys, so that one is known by several of a minor."""


@pytest.mark.parametrize("name", TARGETS)
def test_releases_are_sorted_supported_and_one_a_minor(name):
    target = TARGETS[name]
    for supported, releases in [
        (target.supported, target.releases),
        *((each.supported, each.releases) for each in target.beside.values()),
    ]:
        versions = [Version(text) for text in releases]
        assert versions == sorted(versions)
        assert all(supported.contains(version) for version in versions)
        width = 3 if name in BY_PATCH and releases is target.releases else 2
        assert len({version.release[:width] for version in versions}) == len(versions)
    usual = {"huggingface": "5.23.0", "glm4": "5.23.0"}
    assert target.latest == usual.get(name, target.releases[-1])


@pytest.mark.parametrize(("name", "release"), RELEASES)
def test_companions_are_supported(name, release):
    target = TARGETS[name]
    dialect = dialect_of(target, release)
    for package, known in target.beside.items():
        assert known.supported.contains(dialect[package])


@pytest.mark.parametrize("name", TARGETS)
def test_bounds_of_rows_lie_within_what_is_supported(name):
    """A `since` that every release has, or an `until` that none has, says nothing."""
    target = TARGETS[name]
    releases = {"": target.releases, target.package: target.releases}
    releases |= {each: known.releases for each, known in target.beside.items()}
    for file in target.files:
        for entry in file.entries:
            known = [Version(text) for text in releases[entry.package]]
            assert any(entry.holds_at(version) for version in known), entry


def entry(**bounds) -> Entry:
    return Entry(("key",), (), lambda _: {}, lambda _: {}, "", **bounds)


def test_bounds_are_first_with_and_first_without():
    row = entry(since="4.41", until="5.15")
    assert [row.holds_at(Version(v)) for v in ("4.40.2", "4.41.0", "5.14.1", "5.15.0")] == [
        False,
        True,
        True,
        False,
    ]


# ── the registry ─────────────────────────────────────────────────────────────────────────────────


def test_a_version_may_be_given_in_part():
    target, version = TARGETS.resolve("huggingface@4.40")
    assert (target.name, version) == ("huggingface", Version("4.40.2"))
    assert TARGETS.resolve("deepspeed@0.16.4")[1] == Version("0.16.4")
    assert TARGETS.resolve("huggingface@4")[1] == Version("4.57.6")


def test_without_a_version_the_software_decides_then_the_latest():
    assert TARGETS.resolve("deepspeed", {"deepspeed": "0.17"})[1] == Version("0.17.6")
    assert TARGETS.resolve("deepspeed", {"transformers": "4.40"})[1] == Version("0.19.8")


def test_an_unknown_target_is_told_with_the_nearest_name():
    with pytest.raises(UnknownTarget, match="`huggingface`"):
        TARGETS.resolve("hugingface@4.40")
    with pytest.raises(UnknownTarget, match="there are huggingface, deepspeed"):
        TARGETS.resolve("megatron")
    with pytest.raises(UnknownTarget, match="no version of transformers"):
        TARGETS.resolve("huggingface@newest")


def test_asking_for_one_target_imports_no_other():
    code = (
        "import sys; from tunec.targets.registry import TARGETS; TARGETS['deepspeed'];"
        "print([m for m in sys.modules if m.startswith('tunec.targets.') or m in"
        " ('torch', 'deepspeed', 'transformers', 'jsonschema')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tunec.targets.deepspeed.target" in done.stdout
    for other in ("huggingface", "launch", "simpletuner", "torch'", "jsonschema"):
        assert other not in done.stdout
