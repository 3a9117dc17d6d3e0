"""A fleet of twenty specs on fifty clusters: built, edited, checked, compared."""

import itertools
import shutil
from pathlib import Path

import pytest

from tunec.compiler.cli import diff_output
from tunec.compiler.fleet.lock import LOCK, read_lock
from tunec.compiler.review.diff.formats import comparison_json
from tunec.schemas.hardware.catalogue import cluster_names

GOLDEN = Path(__file__).parent / "golden"
MODELS = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "qwen2.5-7b", "mistral-7b-v0.3")
METHODS = ("lora", "qlora")
SEQUENCES = (1024, 4096)
FLEET = """\
fleet: 1
specs: specs/*.yaml
clusters: [{clusters}]
targets: [deepspeed, huggingface]
overrides:
  - labels: {{cloud: gcp}}
    set: {{train: {{report_to: [tensorboard]}}}}
"""


def write(folder: Path) -> Path:
    (folder / "specs").mkdir(parents=True)
    kinds = itertools.product(MODELS, METHODS, SEQUENCES)
    for model, method, sequence in kinds:
        name = f"{model}-{method}-{sequence}"
        (folder / "specs" / f"{name}.yaml").write_text(
            f"tunec: 1\nmodel: {model}\nmethod: {{{method}: {{rank: 16}}}}\n"
            f"data: {{train: train.jsonl, samples: 20000, sequence: {sequence}}}\n"
            "hardware: a100-80g-x8\nbatch: {global: 64}\n"
            "train: {epochs: 1, learning_rate: 1e-4, output: out}\n",
            "utf-8",
        )
    names = [name for name in cluster_names() if "gaudi" not in name and "atlas" not in name][:50]
    assert len(names) == 50
    (folder / "fleet.yaml").write_text(FLEET.format(clusters=", ".join(names)), "utf-8")
    return folder / "fleet.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the fleet and its tree."""
    from tunec.compiler.cli.main import run
    from tunec.targets.registry import REGISTRY

    folder = tmp_path_factory.mktemp("fleet")
    run(["fleet", str(write(folder)), "-o", str(folder / "build"), "-j", "2"], REGISTRY, "0")
    return folder


@pytest.fixture
def copy(built, tmp_path) -> Path:
    shutil.copytree(built, tmp_path / "copy")
    return tmp_path / "copy"


def edit(folder: Path, pattern: str, old: str, new: str) -> None:
    for spec in (folder / "specs").glob(pattern):
        text = spec.read_text("utf-8")
        assert old in text
        spec.write_text(text.replace(old, new), "utf-8")


def test_a_thousand_pairs(built):
    locked = list(read_lock(built / "build"))
    assert len(locked) == 1000
    assert len({each.pair.spec for each in locked}) == 20
    assert sum(each.summary["fits"] for each in locked) > 900


def test_each_kind_of_drift(copy, tunec):
    tree = copy / "build"
    edit(copy, "llama-3.2-1b-lora-1024.yaml", "epochs: 1", "epochs: 2")
    (copy / "specs" / "mistral-7b-v0.3-qlora-4096.yaml").unlink()
    extra = (copy / "specs" / "llama-3.2-3b-lora-1024.yaml").read_text("utf-8")
    (copy / "specs" / "fresh.yaml").write_text(extra, "utf-8")
    file = tree / "qwen2.5-7b-lora-1024/dgx-h100/huggingface/training_args.yaml"
    file.write_text(file.read_text("utf-8") + "seed: 1\n", "utf-8")
    (tree / "qwen2.5-7b-lora-1024/dgx-h200/huggingface/training_args.yaml").unlink()
    (tree / "stray").write_text("x")
    result = tunec("fleet", copy / "fleet.yaml", "-o", tree, "--check", "--format", "json")
    assert result.code == 1
    kinds: dict[str, list[str]] = {}
    for each in result.json:
        kinds.setdefault(f"{each['kind']} {each['why']}".strip(), []).append(each["path"])
    orphans = kinds.pop("orphan")
    assert {kind: len(paths) for kind, paths in kinds.items()} == {
        "stale changed since: spec": 50,
        "stale the fleet no longer selects it": 50,
        "not built": 50,
        "edited differs from what was written": 1,
        "missing": 1,
    }
    assert {path.split("/")[0] for path in orphans} == {"stray", "mistral-7b-v0.3-qlora-4096"}
    tunec("fleet", copy / "fleet.yaml", "-o", tree, "--prune", "--overwrite")
    assert tunec("fleet", copy / "fleet.yaml", "-o", tree, "--check").out == "nothing differs\n"


CHANGES = {
    "breaking": ("*-lora-1024.yaml", "global: 64", "global: 128"),
    "performance": ("llama-3.1-8b-lora-4096.yaml", "batch:", "pin: {batch.micro: 1}\nbatch:"),
    "cosmetic": ("qwen2.5-7b-qlora-1024.yaml", "output: out", "output: elsewhere"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_each_class_of_change(built, copy, tunec, kind, monkeypatch, request):
    """Both sides are planned once; what is shown as Markdown is also looked at as JSON."""
    edit(copy, *CHANGES[kind])
    compared = []
    shown = diff_output.comparison_markdown
    monkeypatch.setattr(
        diff_output, "comparison_markdown", lambda found: compared.append(found) or shown(found)
    )
    result = tunec(
        *("diff", built / "specs", copy / "specs", "--fleet", copy / "fleet.yaml"),
        *("--format", "markdown", "--fail-on", "performance"),
    )
    assert result.code == (0 if kind == "cosmetic" else 1)
    holds(comparison_json(*compared), kind)
    golden = GOLDEN / f"{kind}.md"
    if request.config.getoption("--bless"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(result.out, "utf-8")
    assert result.out == golden.read_text("utf-8")


def holds(found, kind):
    """As many specs and groups as the change touches; each cluster is counted once."""
    assert found["class"] == kind
    touched = [each for each in found["specs"] if each["groups"]]
    assert len(touched) == (5 if kind == "breaking" else 1)
    for spec in touched:
        grouped = sum(len(group["effects"]) for group in spec["groups"])
        assert grouped + spec["untouched"] + spec["unplanned"] == spec["clusters"] == 50
        assert len(spec["groups"]) < 15


def test_the_lock_is_written_once_for_all(built):
    lines = (built / "build" / LOCK).read_text("utf-8").splitlines()
    assert lines[1:] == sorted(lines[1:], key=lambda line: line.partition('"inputs"')[0])
