"""A tree is built incrementally, says truly what is in it, and tells each kind of drift."""

import csv
import json
import shutil
from io import StringIO
from pathlib import Path

import pytest

from tunec.compiler.fleet.lock import LOCK, PART, LockedPair, line_of, members, read_lock
from tunec.compiler.version import __version__


@pytest.fixture
def built(fleet, tunec):
    tree = fleet.parent / "build"
    result = tunec("fleet", fleet, "-o", tree)
    assert result.code == 1, "8B in full does not fit one T4"
    return tree


def files(tree: Path) -> dict[str, bytes]:
    found = (file for file in tree.rglob("*") if file.is_file())
    return {file.relative_to(tree).as_posix(): file.read_bytes() for file in found}


def check(tunec, fleet, tree) -> dict[str, str]:
    result = tunec("fleet", fleet, "-o", tree, "--check")
    lines = [] if result.out == "nothing differs\n" else result.out.splitlines()
    assert result.code == (1 if lines else 0)
    return dict(line.split(": ", 1) for line in lines)


def compiled(tunec, fleet, tree) -> int:
    """How many pairs a build compiles, that replaces what was edited."""
    said = tunec("fleet", fleet, "-o", tree, "--overwrite").err.splitlines()[0]
    return int(said.partition(", ")[2].partition(" ")[0])


def test_layout_and_lock(built):
    found = files(built)
    assert "small/g5.12xlarge/huggingface/training_args.yaml" in found
    assert "q/t4-x1/huggingface/adapter_config.json" in found
    assert PART not in found
    head, *lines = found[LOCK].decode().splitlines()
    assert json.loads(head) == {"tunec.lock": 1, "tunec": __version__}
    assert len(lines) == 12
    locked = {str(each.pair): each for each in read_lock(built)}
    assert list(locked) == sorted(locked)
    artifacts = {
        f"{k.pair.spec}/{k.pair.cluster}/{a}" for k in locked.values() for a in k.artifacts
    }
    assert artifacts == set(found) - {LOCK}
    one = locked["small on g5.12xlarge"]
    assert one.decisions["batch.global"] == 128, "the fleet file's override"
    assert one.inputs.tunec == __version__
    assert [each.partition("@")[0] for each in one.inputs.targets] == ["deepspeed", "huggingface"]
    assert LockedPair.from_line(line_of(one, members(one.decisions))) == one


def test_an_infeasible_pair_does_not_stop_the_others(built):
    summary = {str(each.pair): each.summary for each in read_lock(built)}
    assert summary["large on t4-x1"]["fits"] is False
    assert "nothing fits" in summary["large on t4-x1"]["why"]
    assert sum(each["fits"] for each in summary.values()) >= 10


def test_the_same_as_compile(built, fleet, tunec):
    (site,) = [each.name for each in (built / "small").iterdir() if "80g" in each.name]
    folder = fleet.parent / "alone/small" / site  # as deep: the files name those beside the spec
    tunec(
        *("compile", fleet.parent / "specs/small.yaml", "--hardware", "a100-80g-x8"),
        *("--target", "deepspeed", "--target", "huggingface", "-o", folder),
    )
    alone, mine = files(folder), files(built / "small" / site)

    def body(content: bytes) -> list[str]:
        return [line for line in content.decode().splitlines() if not line.startswith("# tunec ")]

    assert {name: body(content) for name, content in alone.items()} == {
        name: body(content) for name, content in mine.items()
    }


def test_nothing_changed_nothing_is_compiled_or_touched(built, fleet, tunec):
    before = {file: file.stat().st_mtime_ns for file in built.rglob("*")}
    assert compiled(tunec, fleet, built) == 0
    assert {file: file.stat().st_mtime_ns for file in built.rglob("*")} == before
    assert check(tunec, fleet, built) == {}


def test_a_changed_spec_is_stale_and_only_it_is_compiled(built, fleet, tunec):
    spec = fleet.parent / "specs" / "small.yaml"
    spec.write_text(spec.read_text("utf-8").replace("epochs: 1", "epochs: 2"), "utf-8")
    found = check(tunec, fleet, built)
    assert len(found) == 4
    assert set(found.values()) == {"stale (changed since: spec)"}
    assert all(path.startswith("small/") for path in found)
    assert compiled(tunec, fleet, built) == 4
    assert check(tunec, fleet, built) == {}


def test_a_changed_override_is_stale(built, fleet, tunec):
    fleet.write_text(fleet.read_text("utf-8").replace("128", "256"), "utf-8")
    found = check(tunec, fleet, built)
    assert set(found.values()) == {"stale (changed since: overrides)"}
    assert {path.partition("/")[2] for path in found} == {"g5.12xlarge"}


def test_a_changed_consumer_version_is_stale(built, fleet, tunec):
    text = fleet.read_text("utf-8").replace("huggingface]", "huggingface@4.44]")
    fleet.write_text(text, "utf-8")
    assert set(check(tunec, fleet, built).values()) == {"stale (changed since: targets)"}


def test_a_changed_cluster_file_is_stale(fleet, tunec, tmp_path):
    own = tmp_path / "own.yaml"
    node = (
        "  - accelerators: [{device: a100-80g, count: 2}]\n    host: {memory: 256GiB, cores: 32}\n"
    )
    own.write_text("name: own\nnodes:\n" + node, "utf-8")
    fleet.write_text(fleet.read_text("utf-8").replace("t4-x1]", "own.yaml]"), "utf-8")
    tree = tmp_path / "build"
    tunec("fleet", fleet, "-o", tree)
    assert (tree / "large" / "own" / "huggingface" / "training_args.yaml").exists()
    own.write_text(own.read_text("utf-8").replace("count: 2", "count: 4"), "utf-8")
    found = check(tunec, fleet, tree)
    assert set(found.values()) == {"stale (changed since: cluster)"}
    assert len(found) == 3


def test_a_new_tunec_or_catalogue_is_stale(built, fleet, tunec):
    lock = built / LOCK
    old = lock.read_text("utf-8")
    lock.write_text(old.replace(f'"tunec":"{__version__}"', '"tunec":"0.0.1"'), "utf-8")
    assert set(check(tunec, fleet, built).values()) == {"stale (changed since: tunec)"}
    model = next(iter(read_lock(built))).inputs.model
    lock.write_text(old.replace(model, "0" * 16), "utf-8")
    assert set(check(tunec, fleet, built).values()) == {"stale (changed since: model)"}


def test_edited_missing_and_not_built(built, fleet, tunec):
    lines = (built / LOCK).read_text("utf-8").splitlines(keepends=True)
    kept = (line for line in lines if '"large","cluster":"g5' not in line)
    (built / LOCK).write_text("".join(kept))
    edited = built / "small/g5.12xlarge/huggingface/training_args.yaml"
    gone = built / "q/t4-x1/huggingface/adapter_config.json"
    edited.write_text(edited.read_text("utf-8") + "learning_rate: 1.0\n", "utf-8")
    gone.unlink()
    found = check(tunec, fleet, built)
    assert found[edited.relative_to(built).as_posix()] == "edited (differs from what was written)"
    assert found[gone.relative_to(built).as_posix()] == "missing"
    assert found["large/g5.12xlarge"] == "not built"
    assert compiled(tunec, fleet, built) == 3
    assert check(tunec, fleet, built) == {}


def test_an_edit_by_hand_ends_the_build_before_anything_is_written(built, fleet, tunec):
    name = "small/g5.12xlarge/huggingface/training_args.yaml"
    (built / name).write_text("mine: true\n", "utf-8")
    fleet.write_text(fleet.read_text("utf-8").replace("128", "256"), "utf-8")
    before = files(built)
    found = tunec("fleet", fleet, "-o", built)
    assert found.code == 1
    first, last = found.err.splitlines()
    assert first == f"{name}: edited since it was written"
    assert last.startswith("nothing was written: --overwrite replaces edited files")
    assert files(built) == before
    assert tunec("fleet", fleet, "-o", built, "--overwrite").code in (0, 1)
    assert "mine" not in (built / name).read_text("utf-8")


def test_an_edit_is_mended_by_a_build_that_overwrites(built, fleet, tunec):
    before = files(built)
    for name in ("small/g5.12xlarge/huggingface/training_args.yaml",):
        (built / name).write_bytes(before[name].replace(b"true", b"TRUE"))
    assert compiled(tunec, fleet, built) == 1
    assert files(built) == before


def test_orphans_are_told_and_only_prune_removes_them(built, fleet, tunec):
    (built / "stray.txt").write_text("x")
    (built / "small" / "old-cluster" / "huggingface").mkdir(parents=True)
    (built / "small" / "old-cluster" / "huggingface" / "training_args.yaml").write_text("x")
    (built / "small" / "g5.12xlarge" / "notes.md").write_text("x")
    strays = {
        "stray.txt",
        "small/old-cluster/huggingface/training_args.yaml",
        "small/g5.12xlarge/notes.md",
    }
    assert {path for path, what in check(tunec, fleet, built).items() if what == "orphan"} == strays
    said = tunec("fleet", fleet, "-o", built).err
    assert all(f"{name}: belongs to no pair" in said for name in strays)
    assert strays < set(files(built))
    tunec("fleet", fleet, "-o", built, "--prune")
    assert not strays & set(files(built))
    assert not (built / "small" / "old-cluster").exists()
    assert check(tunec, fleet, built) == {}


def test_what_is_not_selected_any_more_is_orphaned(built, fleet, tunec):
    (fleet.parent / "specs" / "q.yaml").unlink()
    fleet.write_text(fleet.read_text("utf-8").replace(", t4-x1", ""), "utf-8")
    found = check(tunec, fleet, built)
    assert found["q/g5.12xlarge"] == "stale (the fleet no longer selects it)"
    assert found["small/t4-x1/huggingface/training_args.yaml"] == "orphan"
    tunec("fleet", fleet, "-o", built, "--prune")
    assert {path.split("/")[0] for path in files(built)} == {"small", "large", LOCK}
    assert check(tunec, fleet, built) == {}


def test_what_does_not_fit_any_more_leaves_orphans(built, fleet, tunec):
    text = fleet.read_text("utf-8") + "  - specs: q\n    set: {budget: {gpu_memory: 1GiB}}\n"
    fleet.write_text(text, "utf-8")
    tunec("fleet", fleet, "-o", built)
    orphans = {path for path, what in check(tunec, fleet, built).items() if what == "orphan"}
    assert orphans
    assert all(path.startswith("q/") for path in orphans)


def test_policies_hold_for_every_pair(fleet, tunec, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "policy: 1\nrules:\n  - name: small-batches\n    because: b\n"
        "    require: {batch.global: {to: 64}}\n",
        "utf-8",
    )
    fleet.write_text(fleet.read_text("utf-8") + "policies: [policy.yaml]\n", "utf-8")
    result = tunec("fleet", fleet, "-o", tmp_path / "build")
    assert result.code == 1
    assert "small-batches" in result.err
    assert not (tmp_path / "build/small/g5.12xlarge").exists()
    assert (tmp_path / "build/small/t4-x1").exists()


def test_summary_forms(built, fleet, tunec):
    rows = list(csv.DictReader(StringIO(tunec("fleet", fleet, "-o", built, "--format", "csv").out)))
    assert len(rows) == 12
    assert [row["spec"] for row in rows] == sorted(row["spec"] for row in rows)
    data = tunec("fleet", fleet, "-o", built, "--format", "json").json
    assert [each["cluster"] for each in data] == [row["cluster"] for row in rows]
    fast = tunec(
        "fleet", fleet, "-o", built, "--format", "json", "--sort", "tokens_per_second"
    ).json
    speeds = [each["tokens_per_second"] for each in fast if each["fits"]]
    assert speeds == sorted(speeds, reverse=True)
    assert "fits" not in [each["spec"] for each in fast if not each["fits"]]
    table = tunec("fleet", fleet, "-o", built, "--format", "markdown").out
    assert len(table.splitlines()) == 14
    assert "| large | t4-x1 | - |" in table
    text = tunec("fleet", fleet, "-o", built).out
    assert text.splitlines()[-1] == "10 of 12 fit"
    assert tunec("fleet", fleet, "-o", built, "--sort", "beauty").code == 2


def test_a_spec_with_faults_is_reported_and_the_others_are_built(fleet, tunec, tmp_path):
    spec = tmp_path / "specs" / "q.yaml"
    spec.write_text(spec.read_text("utf-8").replace("model:", "modle:"), "utf-8")
    result = tunec("fleet", fleet, "-o", tmp_path / "build")
    assert result.code == 1
    assert "modle" in result.err
    assert not (tmp_path / "build" / "q").exists()
    assert (tmp_path / "build" / "small").exists()


def test_a_tree_can_be_moved(built, fleet, tunec, tmp_path):
    there = tmp_path / "elsewhere"
    shutil.copytree(built, there)
    assert check(tunec, fleet, there) == {}
