"""The memory account of SimpleTuner's files, beside the plan that they were written from."""

import json

import pytest
from tests.lints.lint_asking import lint

import tunec
from tunec.compiler.lints.facts.memory import estimate

GIVEN = ("--model", "flux.1-dev", "--hardware", "rtx-3090-x1")
CONFIG = {
    "model_family": "flux",
    "model_type": "lora",
    "pretrained_model_name_or_path": "black-forest-labs/FLUX.1-dev",
    "lora_rank": 16,
    "train_batch_size": 1,
    "resolution": 1024,
    "resolution_type": "pixel",
    "optimizer": "adamw_bf16",
    "mixed_precision": "bf16",
    "gradient_checkpointing": True,
    "base_model_precision": "int8-quanto",
}
BACKEND = [{"id": "pictures", "type": "local", "instance_data_dir": "pictures", "resolution": 1024}]


@pytest.fixture
def estimated(tmp_path, monkeypatch):
    """What the rule reckons of a config and its data sets."""
    seen = []
    real = estimate.estimate
    monkeypatch.setattr(estimate, "estimate", lambda run: seen.append(real(run)) or seen[-1])

    def ask(sets=(), **changes):
        texts = {
            "config.json": json.dumps(CONFIG | changes),
            "multidatabackend.json": json.dumps([BACKEND[0], *sets]),
        }
        answer = lint(tmp_path, texts, [*texts, *GIVEN])
        return answer.names, seen[-1]

    return ask


def test_eight_bits_fit_24_gb_and_sixteen_do_not(estimated):
    assert "device-memory-exceeded" not in estimated()[0]
    names, found = estimated(base_model_precision="no_change")
    assert "device-memory-exceeded" in names
    assert found.account.workload.data.image_width == 1024


@pytest.mark.parametrize(
    ("key", "elements"), [("keep_vae_loaded", 83_819_683), ("vae_cache_ondemand", 83_819_683)]
)
def test_a_vae_that_stays_is_counted(estimated, key, elements):
    plain, kept = estimated()[1].account, estimated(**{key: True})[1].account
    assert kept.peak_bytes - plain.peak_bytes == 2 * elements


def test_text_encoders_stay_where_a_data_set_encodes_late(estimated):
    texts = {"id": "texts", "dataset_type": "text_embeds", "text_cache_ondemand": True}
    plain, kept = estimated()[1].account, estimated([texts])[1].account
    assert kept.peak_bytes - plain.peak_bytes == 2 * (123_060_480 + 4_762_310_656)


@pytest.mark.parametrize(
    "elsewhere",
    [{"ramtorch": True}, {"musubi_blocks_to_swap": 20}, {"base_model_precision": "int4-quanto"}],
)
def test_what_no_slot_speaks_of_is_not_reckoned(estimated, elsewhere):
    assert estimated(**elsewhere)[1] is None


SPEC = """\
tunec: 1
name: plan-and-lint
model: {model}
method: {method}
data: {{train: pictures, samples: 100, resolution: 512}}
hardware: a100-80g-x1
batch: {{global: 4}}
train: {{steps: 10, learning_rate: 1e-4}}
targets: [simpletuner]
"""


@pytest.mark.parametrize("method", ["{lora: {rank: 16, targets: attention}}", "{full: {}}"])
@pytest.mark.parametrize("model", ["sd3-medium", "sdxl-base-1.0", "stable-diffusion-v1-5"])
def test_the_reckoning_of_emitted_files_is_the_plans(tmp_path, monkeypatch, model, method):
    seen = []
    real = estimate.estimate
    monkeypatch.setattr(estimate, "estimate", lambda run: seen.append(real(run)) or seen[-1])
    (tmp_path / "spec.yaml").write_text(SPEC.format(model=model, method=method))
    compiled = tunec.compile(tmp_path / "spec.yaml")
    written = compiled.artifacts["simpletuner"]
    texts = {each.name: each.text for each in written if each.name.endswith(".json")}
    lint(tmp_path, texts, [*texts, "--model", model, "--hardware", "a100-80g-x1"])
    assert seen[-1].account.peak_bytes == compiled.planned.memory.peak_bytes
