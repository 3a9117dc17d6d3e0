"""Shrinking and adapting, without running anything."""

import json

import pytest
import yaml
from tests.rehearse.specs import SPEC

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.cli.inputs import targets_for
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.rehearse.adapt import adapt
from tunec.compiler.rehearse.compare import rate
from tunec.compiler.rehearse.shrink import Unrehearsable, shrunk
from tunec.compiler.verify.cases import cases_of
from tunec.schemas.models.catalogue import card
from tunec.targets.registry import REGISTRY

MODELS = ("llama-3.1-8b", "gemma-2-2b", "qwen3-30b-a3b", "glm-4-9b-0414", "deepseek-v2-lite")


@pytest.mark.parametrize("name", MODELS)
def test_a_shrunk_model_is_small_and_of_the_same_kind(name):
    config = card(name).config
    small, whole = derive(shrunk(config)), derive(config)
    assert small.family == whole.family
    assert {m.path for m in small.modules} == {m.path for m in whole.modules}
    assert sum(m.parameters for m in small.modules) < 500_000


def test_a_config_without_a_decoder_is_refused():
    with pytest.raises(Unrehearsable, match="hidden_size"):
        shrunk({"model_type": "unknown"})


def case(tmp_path, **more):
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **more}))
    loaded = load_spec(path, targets=REGISTRY.names())
    asked = targets_for(REGISTRY, ["huggingface"], loaded)
    compiled = compile_spec(loaded, asked)
    assert compiled.ok, compiled.diagnostics
    return cases_of(compiled, asked)[0]


def test_fp16_becomes_bf16_on_a_cpu_only_and_hides_what_it_decides(tmp_path):
    pins = {"parallel.engine": "deepspeed", "zero.stage": 2}
    found = case(tmp_path, precision="fp16", pin=pins)
    texts = {name: each.text for name, each in found.delivered.items()}
    cpu, gpu = (adapt(texts, found.plan, device, 2) for device in ("cpu", "cuda"))
    config = json.loads(cpu.files["ds_config.json"])
    assert config["bf16"]["enabled"]
    assert not config["fp16"]["enabled"]
    assert "precision.compute" in cpu.hidden
    assert json.loads(gpu.files["ds_config.json"])["fp16"]["enabled"]
    assert "precision.compute" not in gpu.hidden


@pytest.mark.parametrize("kind", ["constant", "constant_with_warmup", "linear", "cosine"])
def test_rates_are_those_of_transformers(kind, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    plan = case(tmp_path, pin={"schedule.kind": kind}).plan
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], plan.optimizer.learning_rate)
    warmup = plan.schedule.warmup_steps
    scheduler = transformers.get_scheduler(kind, optimizer, warmup, 40)
    for step in range(40):
        assert rate(plan, step, 40) == pytest.approx(scheduler.get_last_lr()[0], abs=1e-15)
        optimizer.step()
        scheduler.step()
