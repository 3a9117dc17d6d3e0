"""LOMO and AdaLOMO: what a spec may ask of optimizers that step in the backward pass."""

import pytest
import yaml
from planning import planned, spec_of

import tunec

FULL = {"model": "llama-3.2-1b", "method": "full", "hardware": "a100-80g-x1"}


def by(optimizer="adalomo", **changes):
    given = {"batch": {"global": 4}, "train": {"optimizer": optimizer}, **changes}
    return planned(**{**FULL, **given})


@pytest.mark.parametrize(("optimizer", "rate"), [("lomo", 0.03), ("adalomo", 0.0005)])
@pytest.mark.parametrize(("target", "file"), [("huggingface", "training_args"), ("trl", "sft")])
def test_the_trainer_is_told(optimizer, rate, target, file):
    spec = spec_of(**FULL, batch={"global": 4}, train={"optimizer": optimizer}, targets=[target])
    found = tunec.compile(spec)
    assert found.ok, found.diagnostics
    (text,) = [text for path, text in found.texts().items() if path.endswith(f"/{file}.yaml")]
    said = yaml.safe_load(text)
    assert said["optim"] == optimizer
    assert said["learning_rate"] == rate
    assert (said["max_grad_norm"], said["weight_decay"]) == (0.0, 0.0)
    assert (said["per_device_train_batch_size"], said["gradient_accumulation_steps"]) == (4, 1)
    assert "adam_beta1" not in said


def test_axolotl_trains_it_under_autocast():
    """Its `bf16` is no more than auto, true or false: utils/schemas/config.py."""
    found = tunec.compile(
        spec_of(
            **{**FULL, "model": "qwen3-0.6b"},
            batch={"global": 4},
            train={"optimizer": "lomo"},
            targets=["axolotl"],
        )
    )
    assert found.ok, found.diagnostics
    (text,) = [text for path, text in found.texts().items() if path.endswith("/axolotl.yaml")]
    assert yaml.safe_load(text)["bf16"] is True
    assert (found.planned.plan.states.weights, found.planned.plan.states.autocast) == ("bf16", True)


def test_a_release_without_it_is_refused():
    spec = spec_of(
        **FULL,
        batch={"global": 4},
        train={"optimizer": "lomo"},
        targets=["huggingface"],
        software={"transformers": "4.40.2"},
    )
    found = tunec.compile(spec)
    assert [each.id for each in found.diagnostics if each.severity == "error"] == ["E0904"]


def test_weights_and_gradients_are_bf16_and_none_is_accumulated():
    plan = by().plan
    assert (plan.states.weights, plan.states.trainable, plan.states.gradients) == ("bf16",) * 3
    assert (plan.states.autocast, plan.states.master_weights) == (False, False)
    assert (plan.parallel.engine, plan.batch.accumulation, plan.batch.micro) == ("none", 1, 4)


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({"method": "lora"}, "E0604", "adapters have few"),
        ({"precision": "fp16"}, "E0604", "scales an fp16 loss"),
        ({"hardware": "a100-80g-x2"}, "E0702", "before the ranks have summed its gradient"),
        ({"engine": "deepspeed"}, "E0702", "before the ranks have summed its gradient"),
        ({"pin": {"batch.accumulation": 2}}, "E0702", "micro batches cannot be accumulated"),
        ({"model": "qwen2.5-vl-3b"}, "E0604", "row and column statistics"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused(changes, code, why):
    found = by(**changes)
    (told,) = [each for each in found.diagnostics if each.severity == "error"]
    assert told.id == code
    assert why in " ".join((told.message, *told.notes))


@pytest.mark.parametrize("field", ["max_grad_norm", "weight_decay"])
def test_a_number_that_it_is_not_given_is_told(field):
    found = by({"name": "lomo", field: 0.5})
    assert [each.id for each in found.diagnostics] == ["optimizer-number-unused"]
    assert found.plan.values()[f"optimizer.{field}"] == 0.0
