"""A model of clips is trained on clips: those that are long enough, cut to the planned frames."""

from importlib.util import find_spec

import pytest
import yaml
from tests.road.bundle_run import travel
from tests.road.diffusion_model import BESIDE, SIDE, write_clips, write_model_of_clips
from tests.road.simpletuner_observation import linear_modules_of_denoiser, seen_of_painting
from tests.road.test_road import planned_adapters

pytestmark = [pytest.mark.skipif(find_spec("trl") is None, reason="trl is not installed")]

FRAMES = 17
LENGTHS = (FRAMES,) * 6 + (25,) * 4 + (9,) * 3
SPEC = {
    "tunec": 1,
    "model": {"path": "./wan", "config": "wan/transformer/config.json"},
    "method": "lora",
    "hardware": "a100-80g-x2",
    "batch": {"global": 2},
    "data": {"train": "clips", "samples": 10, "resolution": SIDE, "frames": FRAMES},
    "train": {"steps": 4, "learning_rate": 1e-3},
    "pin": {"schedule.save_steps": 2, "schedule.log_steps": 1},
    "targets": ["simpletuner"],
}


@pytest.mark.nightly
def test_simpletuner_trains_on_clips(tmp_path):
    write_model_of_clips(tmp_path / "wan")
    write_clips(tmp_path / "clips", LENGTHS)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC), encoding="utf-8")
    journey = travel(tmp_path, BESIDE)
    told, plan = seen_of_painting(journey), journey.plan
    assert plan["data.frames"] == FRAMES
    assert f"Target frame count: {FRAMES}" in journey.log
    encoded = list((journey.output / "cache" / "vae").rglob("*.pt"))
    assert len(encoded) == sum(each >= FRAMES for each in LENGTHS)
    assert sum(told.drawn) == len(encoded)
    assert told.steps == plan["schedule.steps"]
    assert told.checkpoints == (2, 4)
    modules = linear_modules_of_denoiser(tmp_path / "wan" / "transformer")
    assert told.adapted == planned_adapters(plan, modules)
