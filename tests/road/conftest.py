"""What every run of the road starts with: models, and a project with its spec and its data."""

import shutil
from pathlib import Path

import pytest
import yaml
from tests.road.bundle_run import HERE, travel
from tests.road.diffusion_model import write_painting_model, write_pictures
from tests.road.materials import write_lengths, write_model, write_samples
from tests.road.runs import Run
from tests.road.vision_model import write_seeing_model, write_seen_samples


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Two sets of weights of one architecture, so that one cannot pass for the other."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "tiny", seed=1)
    write_model(folder / "other", seed=2)
    write_seeing_model(folder / "seeing")
    write_painting_model(folder / "painting")
    return folder


@pytest.fixture
def travelled(models, tmp_path):
    """The journey of a run: its spec is compiled, and its entry is started."""

    def of(run: Run):
        for model in models.iterdir():
            shutil.copytree(model, tmp_path / model.name)
        _write_data(run, tmp_path)
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(run.spec), encoding="utf-8")
        return travel(tmp_path, run.beside)

    return of


def _write_data(run: Run, folder: Path) -> None:
    """The samples, their lengths, and the scripts that a spec may name."""
    data = run.spec["data"]
    if run.form == "pictures":
        for name, count in run.pictures.items():
            write_pictures(folder / name, count)
    elif run.form == "images":
        write_seen_samples(folder / data["train"], data["samples"])
    else:
        write_samples(folder / "train.jsonl", run.form, data["samples"])
    if "evaluation" in data:
        write_samples(folder / data["evaluation"], run.form, 10, seed=1)
    if "lengths" in data:
        write_lengths(folder / data["lengths"], folder / "train.jsonl")
    for script in (HERE / "scripts").glob("*.py"):
        shutil.copy(script, folder)
