"""A change of a spec is told by what it does: in each class, on one cluster and on many."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.review.diff.compare import Comparison, compare_spec
from tunec.compiler.review.diff.formats import comparison_markdown, comparison_text
from tunec.compiler.review.diff.intent import intent_changes
from tunec.compiler.review.diff.meanings import KINDS, MEANINGS, meaning_of
from tunec.compiler.review.outcome import Pair, outcome_of
from tunec.compiler.review.sides import side_of

SPEC = """\
tunec: 1
name: run
model: llama-3.1-8b
method: {lora: {rank: 16, targets: attention}}
data: {train: train.jsonl, samples: 10000, sequence: 2048}
hardware: a100-80g-x8
batch: {global: 64}
train: {epochs: 1, learning_rate: 1e-4}
"""
CLUSTERS = ("a100-80g-x8", "a100-40g-x8", "dgx-a100-40g", "h100-sxm-x8", "rtx-4090-x8")


def changed(old: str, new: str, *clusters: str):
    before, after = load_text(old), load_text(new)
    assert before.spec
    assert after.spec
    sides = []
    for text in (old, new):
        planned = {name: plan(load_text(text, hardware=name)) for name in clusters or CLUSTERS[:1]}
        sides.append([outcome_of(each, Pair("run", n)) for n, each in planned.items()])
    return compare_spec("run", intent_changes(before, after), zip(*sides, strict=True))


def edited(old: str, new: str) -> str:
    assert old in SPEC
    return SPEC.replace(old, new)


def test_meanings_are_of_slots_and_every_slot_has_one():
    assert set(MEANINGS) <= {*GROUPS, *SLOTS}
    assert {path.partition(".")[0] for path in SLOTS} <= set(MEANINGS)
    assert {meaning.kind for meaning in MEANINGS.values()} == set(KINDS)


@pytest.mark.parametrize(
    ("old", "new", "kind", "slot"),
    [
        ("global: 64", "global: 128", "breaking", "batch.global"),
        ("learning_rate: 1e-4", "learning_rate: 2e-4", "breaking", "optimizer.learning_rate"),
        ("rank: 16", "rank: 32", "breaking", "adapter.rank"),
        ("epochs: 1,", "epochs: 2,", "breaking", "schedule.steps"),
        ("train: {", "train: {optimizer: sgd, ", "breaking", "optimizer.name"),
        ("model: llama-3.1-8b", "model: llama-3.1-8b\nprecision: fp16", "breaking", None),
        ("train: {", "pin: {batch.micro: 1}\ntrain: {", "performance", "batch.micro"),
        ("train: {", "launcher: accelerate\ntrain: {", "cosmetic", "launch.launcher"),
        ("train: {", "train: {output: elsewhere, ", "cosmetic", "runtime.output"),
    ],
)
def test_class(old, new, kind, slot):
    change = changed(SPEC, edited(old, new))
    assert change.kind == kind, change.groups
    assert len(change.intent) == 1
    assert slot is None or slot in {each.slot for each in change.groups[0].slots}


def test_the_same_weights_from_another_place_are_no_other_weights():
    paths = ("meta-llama/Llama-2-7b-hf", "NousResearch/Llama-2-7b-hf", "lmsys/vicuna-7b-v1.5")
    for new, kind in zip(paths[1:], ("cosmetic", "breaking"), strict=True):
        found = changed(edited("llama-3.1-8b", paths[0]), edited("llama-3.1-8b", new))
        (change,) = found.groups[0].effects[0].slots
        assert (change.slot, change.old, change.new) == ("model.path", paths[0], new)
        assert found.kind == kind


def test_a_comment_changes_nothing():
    change = changed(SPEC, SPEC + "# a word\n")
    assert (change.intent, change.groups, change.untouched) == ((), (), 1)
    assert change.kind == "cosmetic"


def test_no_longer_fits_is_breaking_and_says_the_sum():
    change = changed(SPEC, edited("batch:", "budget: {gpu_memory: 1GiB}\nbatch:"))
    group = change.groups[0]
    assert (group.fate, group.kind) == ("no longer fits", "breaking")
    assert "1.0 GiB" in comparison_text_of(change)
    back = changed(edited("batch:", "budget: {gpu_memory: 1GiB}\nbatch:"), SPEC)
    assert (back.groups[0].fate, back.kind) == ("fits now", "performance")


def test_zero_stages_that_share_their_checkpoints():
    one, two, three = ({"zero.stage": stage} for stage in (1, 2, 3))
    assert meaning_of("zero.stage", one, two).kind == "performance"
    assert meaning_of("zero.stage", two, three).kind == "breaking"
    assert meaning_of("parallel.data", {"zero.stage": 0}, {"zero.stage": 0}).kind == "performance"
    assert meaning_of("parallel.data", one, one).kind == "breaking"


def comparison_text_of(change) -> str:
    return comparison_text(Comparison((change,)))


def test_many_clusters_read_as_few_sentences():
    tight = edited("batch:", "budget: {gpu_memory: 18GiB}\nbatch:")
    change = changed(SPEC, tight, *CLUSTERS)
    assert sum(len(group.effects) for group in change.groups) + change.untouched == len(CLUSTERS)
    assert len(change.groups) < len(CLUSTERS)
    text = comparison_text_of(change)
    assert "budget.gpu_memory: not given -> 18GiB" in text


def test_a_group_is_called_by_what_sets_it_apart():
    smaller = edited("batch:", "budget: {gpu_memory: 60%}\nbatch:")
    change = changed(SPEC, smaller, *CLUSTERS[:4])
    small = {"a100-40g-x8", "dgx-a100-40g"}
    groups = {g.where: {each.pair.cluster for each in g.effects} for g in change.groups}
    assert groups["the 2 with 39.4 GiB a device"] == small


def test_a_limit_that_moves_no_decision_changes_nothing():
    change = changed(SPEC, edited("batch:", "budget: {gpu_memory: 39GiB}\nbatch:"), *CLUSTERS[:4])
    touched = {each.pair.cluster for group in change.groups for each in group.effects}
    assert touched == {"a100-80g-x8", "h100-sxm-x8"}
    assert "on 2 of 4 clusters: nothing changes" in comparison_text_of(change)


def test_markdown_shows_text_as_it_is():
    change = changed(SPEC, edited("train.jsonl", '"a|b*<i>.jsonl"'))
    shown = comparison_markdown(Comparison((change,)))
    assert "a\\|b\\*&lt;i&gt;.jsonl" in shown
    assert "<i>" not in shown


# ── the command ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(SPEC, "utf-8")
    new.write_text(edited("global: 64", "global: 128"), "utf-8")
    return old, new


def test_fail_on(tunec, pair):
    old, new = map(str, pair)
    assert tunec("diff", old, new).code == 0
    assert tunec("diff", old, new, "--fail-on", "breaking").code == 1
    assert tunec("diff", old, old, "--fail-on", "cosmetic").code == 0
    assert tunec("diff", old, old).out == "nothing changes\n"


def test_json_names_every_decision(tunec, pair):
    found = tunec("diff", *map(str, pair), "--format", "json").json
    assert found["class"] == "breaking"
    (spec,) = found["specs"]
    assert spec["intent"][0]["path"] == "batch.global"
    assert spec["intent"][0]["line"] == 7
    decisions = spec["groups"][0]["effects"][0]["decisions"]
    assert decisions["batch.global"]["old"] == 64
    assert decisions["batch.global"]["class"] == "breaking"


def test_files(tunec, pair):
    out = tunec("diff", *map(str, pair), "--target", "huggingface", "--files").out
    assert "--- old/new/huggingface/training_args.yaml" in out
    assert "\n+gradient_accumulation_steps:" in out
    assert "# tunec" not in out


def test_unreadable_side_is_diagnosed(tunec, pair):
    old, new = pair
    new.write_text(SPEC.replace("model:", "modle:"), "utf-8")
    result = tunec("diff", str(old), str(new))
    assert result.code == 1
    assert "modle" in result.err


def test_missing_side_is_told(tunec, pair):
    assert tunec("diff", str(pair[0]), "nowhere.yaml").code == 1
    assert tunec("diff", str(pair[0])).code == 2


def test_a_folder_that_vanishes_while_it_is_read_is_passed_over(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.yaml").write_text(SPEC, "utf-8")

    def read_and_lose_the_other(file: Path) -> bool:
        shutil.rmtree(tmp_path / ({"a", "b"} - {file.parent.name}).pop())
        return True

    monkeypatch.setattr("tunec.compiler.review.sides.is_spec", read_and_lose_the_other)
    assert len(side_of(tmp_path).files) == 1


def test_directories_by_name(tunec, tmp_path):
    for side, names in (("old", ("a", "sub/b", "gone")), ("new", ("a", "sub/b", "fresh"))):
        for name in names:
            file = tmp_path / side / f"{name}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(SPEC.replace("2048", "1024" if name == "fresh" else "2048"), "utf-8")
    (tmp_path / "new" / "other.yaml").write_text("no: spec\n", "utf-8")
    found = tunec("diff", str(tmp_path / "old"), str(tmp_path / "new"), "--format", "json").json
    assert [each["spec"] for each in found["specs"]] == ["a", "sub/b"]
    assert (found["added"], found["removed"]) == (["fresh"], ["gone"])
    assert found["class"] == "breaking"


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "specs").mkdir(parents=True)
    spec = folder / "specs" / "run.yaml"
    base = folder / "specs" / "base.yaml"
    base.write_text("batch: {global: 64}\n", "utf-8")
    spec.write_text("extends: base.yaml\n" + SPEC.replace("batch: {global: 64}\n", ""), "utf-8")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    base.write_text("batch: {global: 32}\n", "utf-8")
    return folder


def test_git_revision_against_the_working_tree(tunec, repository):
    found = tunec("diff", "main..", str(repository / "specs"), "--format", "json").json
    (spec,) = found["specs"]
    assert spec["spec"] == "run"
    assert [(each["path"], each["old"], each["new"]) for each in spec["intent"]] == [
        ("batch.global", 64, 32)
    ]


def test_git_two_revisions(tunec, repository):
    git(repository, "commit", "-qam", "second")
    where = str(repository / "specs")
    assert "batch.global" in tunec("diff", "HEAD~1..HEAD", where).out
    assert tunec("diff", "HEAD..HEAD", where).out == "nothing changes\n"


def test_links_that_lead_out_of_the_repository_are_left_out(tunec, repository, tmp_path):
    (tmp_path / "secret.yaml").write_text(SPEC, "utf-8")
    for name, leads in (("a", "/etc/passwd"), ("b", "../../../../x"), ("c", "../../secret.yaml")):
        (repository / "specs" / f"{name}.yaml").symlink_to(leads)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "links")
    found = tunec("diff", "HEAD~1..", str(repository / "specs"), "--format", "json")
    assert found.code == 0, found.err
    assert [each["spec"] for each in found.json["specs"]] == ["run"]
    assert found.json["added"] == []
    two = tunec("diff", "HEAD~1..HEAD", str(repository / "specs"), "--format", "json")
    assert (two.code, two.json["added"]) == (0, []), two.err


def test_a_fault_of_a_revision_names_it(tunec, repository):
    spec = repository / "specs" / "run.yaml"
    spec.write_text(spec.read_text("utf-8") + "modle: x\n", "utf-8")
    git(repository, "commit", "-qam", "faulty")
    found = tunec("diff", "HEAD~1..HEAD", str(repository / "specs"))
    assert found.code == 1
    assert "/HEAD/specs/run.yaml:" in found.err


def test_what_a_revision_lacks_is_misuse(tunec, repository, monkeypatch):
    monkeypatch.chdir(repository)
    found = tunec("diff", "HEAD..", "--fleet", "nowhere.yaml")
    assert found.code == 2
    assert found.err == "tunec diff: cannot compare: HEAD has no nowhere.yaml\n"


def test_unknown_revision_is_misuse(tunec, repository):
    result = tunec("diff", "--", "nowhere..", str(repository / "specs"))
    assert result.code == 2
    assert "nowhere" in result.err or "revision" in result.err


def test_a_spec_that_is_only_called_otherwise_is_renamed(tunec, tmp_path):
    for side, name in (("old", "run"), ("new", "walk")):
        (tmp_path / side).mkdir()
        text = SPEC.replace("name: run", f"name: {name}")
        (tmp_path / side / f"{name}.yaml").write_text(text, "utf-8")
        (tmp_path / side / "other.yaml").write_text(SPEC.replace("run", "other"), "utf-8")
    found = tunec("diff", tmp_path / "old", tmp_path / "new", "--fail-on", "breaking")
    assert found.code == 0
    assert found.out.splitlines()[0] == "walk (was run): cosmetic"
    changed = [
        line.split("  ")[0] for line in map(str.strip, found.out.splitlines()) if "->" in line
    ]
    assert changed == ["name: run -> walk", "job.name"], "its name, and the job that is called so"
    told = tunec("diff", tmp_path / "old", tmp_path / "new", "--format", "json").json
    assert [each.get("was") for each in told["specs"]] == [None, "run"]
    assert (told["added"], told["removed"]) == ([], [])


def test_what_fits_neither_before_nor_after_is_told(tunec, pair):
    found = tunec("diff", *pair, "--hardware", "t4-x1", "--set", "model=llama-3.1-70b")
    assert "no plan, before or after: nothing fits" in found.out
    assert "nothing changes" not in found.out


def test_hardware_that_leads_nowhere_is_told(tunec, pair):
    found = tunec("diff", *pair, "--hardware", "nowhere")
    assert found.code == 1
    assert "no hardware is called `nowhere`" in found.err
