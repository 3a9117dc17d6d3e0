"""`tunec trace` as it is typed: what it prints, keeps and refuses."""

import importlib.util
import json
import sys

import pytest

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.calibration import calibrated, calibration_of
from tunec.compiler.analyses.memory.timeline import timeline
from tunec.compiler.cli import trace_command
from tunec.compiler.cli.main import run
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.tracing.subject import Subject
from tunec.schemas.frozen import replace
from tunec.targets.registry import REGISTRY

SPEC = """\
tunec: 1
model:
  path: tiny
  config:
    model_type: llama
    hidden_size: 256
    intermediate_size: 1024
    num_hidden_layers: 2
    num_attention_heads: 4
    num_key_value_heads: 2
    vocab_size: 1024
    max_position_embeddings: 2048
    tie_word_embeddings: false
method: {lora: {rank: 8}}
data: {train: train.jsonl, samples: 1000, sequence: 512, packing: true}
hardware: a100-80g-x1
pin: {parallel.engine: none, batch.micro: 2}
"""


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC, "utf-8")
    return file


@pytest.fixture
def tunec(capsys):
    """`tunec trace` in this process: its exit status, standard output and standard error."""

    def done(*arguments):
        capsys.readouterr()  # what importing libraries printed
        code = run(list(map(str, arguments)), REGISTRY, "0")
        said = capsys.readouterr()
        return code, said.out, said.err

    return done


@pytest.fixture(scope="module")
def has_torch():
    for name in ("torch", "transformers", "peft"):
        pytest.importorskip(name)


def test_json_has_trace_account_and_their_difference(spec, tunec, has_torch):
    code, out, err = tunec("trace", spec, "--format", "json")
    assert code == 0, err
    found = json.loads(out)
    traced, accounted = found["trace"]["peak_bytes"], found["account"]["peak_bytes"]
    assert found["error"] == pytest.approx(accounted / traced - 1)
    assert abs(found["error"]) < 0.02
    assert {each["name"] for each in found["trace"]["phases"]} == {
        "forward",
        "backward",
        "optimizer step",
    }
    tensors = found["trace"]["phases"][0]["tensors"]
    assert any(each["module"].endswith("layers.{}.mlp.act_fn") for each in tensors)


def test_text_names_the_tensors_at_the_peak_and_a_calibration_is_kept(spec, tunec, has_torch):
    kept = spec.parent / "tunec-calibration.json"
    code, out, err = tunec("trace", spec, "--save", kept)
    assert code == 0, err
    assert "alive at the peak" in out
    assert "model.layers.{}.mlp" in out
    assert f"wrote {kept}" in err
    subject = subject_at(spec, micro=7)
    phases = calibrated_by(subject, json.loads(kept.read_text("utf-8")))
    assert {each.name for each in phases} == {"forward", "backward", "optimizer step"}
    from tunec.compiler.tracing.live import single_process

    traced = {each.name: each.peak_bytes for each in single_process.run(subject).phases}
    assert {each.name: each.at(7) for each in phases} == pytest.approx(traced, rel=1e-3)


def test_a_calibration_speaks_of_its_own_workload_only(spec, tunec, has_torch):
    kept = spec.parent / "kept.json"
    pytest.importorskip("deepspeed")
    sharded = ("pin.parallel.engine=deepspeed", "pin.zero.stage=1", "hardware=a100-80g-x2")
    given = [word for each in sharded for word in ("--set", each)]
    assert tunec("trace", spec, "--save", kept, *given)[0] == 0  # two traces in one process
    spec.write_text(SPEC.replace("rank: 8", "rank: 16"), "utf-8")
    assert calibrated_by(subject_at(spec, micro=2), json.loads(kept.read_text("utf-8"))) == ()


def calibrated_by(subject, found):
    workload = replace(subject.workload, calibration=calibration_of(found, "kept.json"))
    return timeline(calibrated(workload, subject.layout, padded=subject.is_padded))


def subject_at(spec, micro):
    planned = plan(load_spec(spec))
    assert planned.memory is not None
    config = trace_command.config_of(planned.loaded.spec.model, spec.parent)
    return Subject(config, planned.memory.workload, planned.memory.layout).with_micro(micro)


@pytest.mark.parametrize("model", ["glm-4v-9b", "minicpm-v-2_6", "visualglm-6b"])
def test_code_from_a_models_own_repository_is_not_run(spec, tunec, model, has_torch):
    head, _, tail = SPEC.partition("model:\n")
    rest = tail[tail.index("method:") :].replace("packing: true", "packing: false")
    spec.write_text(f"{head}model: {model}\n{rest}", "utf-8")
    code, out, err = tunec("trace", spec)
    assert code == 1, out
    assert "trust_remote_code" in err


def test_offload_is_refused_with_the_reason(spec, tunec, has_torch):
    pytest.importorskip("deepspeed")
    pins = ("parallel.engine=deepspeed", "zero.stage=2", "zero.offload_optimizer=cpu")
    sets = [word for each in pins for word in ("--set", f"pin.{each}")]
    code, out, _ = tunec("trace", spec, *sets, "--format", "json")
    assert code == 1
    assert "host" in json.loads(out)["refused"]


def test_what_is_not_installed_is_named_with_its_extra(spec, monkeypatch, capsys):
    plain = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else plain(name)
    )
    from tunec.__main__ import main

    monkeypatch.setattr(sys, "argv", ["tunec", "trace", str(spec)])
    with pytest.raises(SystemExit) as left:
        raise SystemExit(main())
    assert left.value.code == 1
    assert "torch cannot be imported: install tunec[trace]" in capsys.readouterr().err


def test_a_spec_without_a_plan_is_not_traced(spec, tunec):
    spec.write_text(SPEC.replace("hardware: a100-80g-x1", "hardware: nothing"), "utf-8")
    code, _, err = tunec("trace", spec)
    assert code == 1
    assert "there is no plan to trace" in err


def test_the_account_of_a_subject_is_the_plans(spec):
    subject = subject_at(spec, micro=2)
    assert account(subject.workload, subject.layout).peak_bytes > 0


def test_what_the_real_model_refuses_is_told(spec, tunec, has_torch):
    """A padding token outside of the vocabulary: torch's embedding asserts that there is none."""
    spec.write_text(SPEC.replace("vocab_size: 1024", "vocab_size: 1024\n    pad_token_id: 4000"))
    code, _, said = tunec("trace", spec)
    assert code == 1
    assert "cannot be run so: AssertionError: Padding_idx must be within" in said
