"""The real Trainer and DeepSpeed agree with the rules: the bad examples of their pages are run."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose

FOLDER = Path(__file__).parent.parent
from tests.lints.lint_pages import examples  # noqa: E402

NEW, OLD, FIRST = "5.23.0", "4.57.6", "4.44.2"
RATE = 5e-5

REFUSED = (
    # rule, which bad example, release, stage, part of the message
    ("batch-of-nothing", 0, NEW, "train", "ZeroDivisionError"),
    ("accumulation-given-twice", 0, NEW, "init", "num_steps"),
    ("accumulation-given-twice", 0, FIRST, "init", "num_steps"),
    ("workers-missing", 0, NEW, "train", "persistent_workers option needs num_workers"),
    ("workers-missing", 1, NEW, "parse", "dataloader_prefetch_factor"),
    ("schedule-argument-missing", 0, NEW, "train", "min_lr"),
    ("schedule-argument-missing", 0, FIRST, "train", "min_lr"),
    ("schedule-argument-missing", 1, NEW, "train", "num_decay_steps"),
    ("schedule-argument-unknown", 0, NEW, "train", "unexpected keyword argument"),
    ("plateau-without-evaluation", 0, NEW, "parse", "requires an eval strategy"),
    ("interval-refused", 0, NEW, "parse", "non-zero --logging_steps"),
    ("interval-refused", 1, OLD, "parse", "must lie in range [0,1]"),
    ("interval-refused", 2, NEW, "parse", "must be an integer if bigger than 1"),
    ("optimizer-number-refused", 0, NEW, "train", "Invalid beta parameter"),
    ("best-save-unguided", 0, NEW, "init", "must be provided when using 'best'"),
    ("metric-of-the-loss-only", 0, NEW, "train", "eval_f1"),
    ("tracker-not-supported", 0, NEW, "init", "is not supported"),
    ("tracker-not-supported", 1, NEW, "init", "tensorbord is not supported"),
    ("no-read-as-false", 0, NEW, "parse", "is not a valid IntervalStrategy"),
    ("best-model-cadence", 0, NEW, "parse", "round multiple"),
    ("divided-by-zero", 0, NEW, "train", "ZeroDivisionError"),
    ("accelerator-config-refused", 0, NEW, "parse", "unexpected keyword argument 'even_batch'"),
    ("word-refused-later", 1, NEW, "init", "verbose"),
    ("number-without-meaning", 2, NEW, "train", "num_workers option should be non-negative"),
    ("value-of-another-type", -1, NEW, "train", "batch_size should be a positive integer"),
    ("required-field-missing", 0, FIRST, "parse", "output_dir"),
    ("key-of-no-class", 0, NEW, "parse", "Some keys are not used by the HfArgumentParser"),
    ("schedule-argument-unusable", 1, NEW, "train", "Unknown decay type: sqrt"),
    # it is on: the model, which has no such method, is asked for checkpointing
    ("boolean-as-text", 0, NEW, "train", "gradient_checkpointing_enable"),
)


def _warm_up_does_nothing(run: Mapping[str, Any]) -> bool:
    return set(run["rates"]) == {RATE}


def _steps(count: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda run: run["steps"] == count


SILENT: tuple[tuple[str, int, str, Mapping[str, Any], Callable[[Mapping[str, Any]], bool]], ...] = (
    # rule, which bad example, release, what is set beside it, what the run then shows
    ("warmup-of-a-constant-rate", 0, NEW, {}, _warm_up_does_nothing),
    ("warmup-of-a-constant-rate", 0, FIRST, {}, _warm_up_does_nothing),
    ("schedule-argument-unknown", 1, NEW, {}, _steps(9)),
    ("max-steps-of-zero", 0, NEW, {}, _steps(1)),
    ("max-steps-of-zero", 0, "4.51.3", {}, _steps(1)),
    ("nothing-is-trained", 0, NEW, {}, _steps(0)),
    ("nothing-is-trained", 1, NEW, {}, lambda run: run["steps"] > 0 and not run["changed"]),
    ("epochs-beside-steps", 0, NEW, {}, _steps(100)),
    ("warmup-longer-than-training", 0, NEW, {}, lambda run: max(run["rates"]) < 0.25 * RATE),
    ("warmup-given-twice", 0, OLD, {"max_steps": 40}, lambda run: run["rates"][9] < RATE),
    ("optimizer-arguments", 0, NEW, {}, _steps(9)),
    ("limit-of-zero-checkpoints", 0, NEW, {"save_steps": 2}, lambda run: len(run["saved"]) == 5),
    ("interval-without-strategy", 0, NEW, {"eval_steps": 2}, lambda run: not run["evaluations"]),
    ("best-save-unguided", 1, NEW, {}, lambda run: run["steps"] == 9 and not run["saved"]),
    ("evaluation-after-the-end", 0, OLD, {}, lambda run: run["evaluations"] == 0),
    ("evaluation-after-the-end", 0, NEW, {}, lambda run: run["evaluations"] == 1),
    ("schedule-argument-unusable", 0, NEW, {}, lambda run: run["rates"][-1] > 1e-6),
    ("interval-of-zero", 0, NEW, {}, lambda run: len(run["saved"]) < 2),
    ("interval-of-zero", 1, NEW, {}, lambda run: run["evaluations"] == 3),
    ("number-without-meaning", 1, NEW, {}, _steps(9)),
    ("liger-settings-unusable", 0, NEW, {}, _steps(9)),
    ("optimizer-targets-unread", 0, NEW, {}, _steps(9)),
    ("tracker-keys-unread", 0, NEW, {"report_to": "none"}, _steps(9)),
    ("compile-turned-on", 0, NEW, {"num_train_epochs": 0}, lambda r: r["values"]["torch_compile"]),
)

DEEPSPEED = (
    # rule, which bad example, processes, part of the refusal
    ("batch-not-divisible", 0, 2, "Micro batch size per gpu: 0"),
    ("batch-not-divisible", 1, 4, "20 != 2 * 2 * 4"),
    ("deepspeed-scheduler-incomplete", 0, 1, "total_num_steps"),
    ("deepspeed-scheduler-unknown", 0, 1, "does not recognize LR scheduler cosine"),
)

NEWER = (
    # rule, which bad example, processes; since 0.17.6
    ("zenflow-refused", 0, 1),
    ("tensor-width-unread", 0, 4),
    ("expert-width-refused", 0, 6),
)

STAGE_3 = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "zero_optimization": {"stage": 3},
}


@cache
def environment(consumer: str, version: str):
    return prepare(choose(consumer, version).requirements)


def bad(rule: str, number: int) -> Mapping[str, str]:
    """The files of a rule's bad example."""
    return [each for each in examples(rule) if each.is_bad][number].files


Question = tuple[str, int, str]
BESIDE: Mapping[Question, Mapping[str, Any]] = {
    **{(rule, number, version): {} for rule, number, version, *_ in REFUSED},
    **{(rule, number, version): beside for rule, number, version, beside, _ in SILENT},
    ("max-steps-of-zero", 0, FIRST): {},
    ("restarts-of-one-cycle", 0, NEW): {},
    ("restarts-of-one-cycle", 0, OLD): {"lr_scheduler_type": "cosine"},
    ("best-model-upside-down", 0, NEW): {
        "load_best_model_at_end": False,
        "eval_strategy": "no",
        "save_strategy": "no",
    },
}


@cache
def answers(version: str) -> Mapping[Question, Any]:
    """All that a release is asked, in one process: importing it takes longer than any run."""
    asked = [each for each in BESIDE if each[2] == version]
    questions = [{"verb": "train", "arguments": arguments(each)} for each in asked]
    script = "lints.consumers.trainer_runs"
    found = ask(environment("transformers", version), script, questions, root=FOLDER)
    return dict(zip(asked, found, strict=True))


def arguments(question: Question) -> Mapping[str, Any]:
    files = bad(question[0], question[1])
    (text,) = (text for name, text in files.items() if name.endswith(".yaml"))
    return {**yaml.safe_load(text), **BESIDE[question]}


def trained(rule: str, number: int, version: str) -> Any:
    return answers(version)[rule, number, version]


def read(version: str, config: Mapping[str, Any], world: int = 1) -> Any:
    asked = {"verb": "read", "config": config, "world": world}
    script = "lints.consumers.deepspeed_runs"
    (answer,) = ask(environment("deepspeed", version), script, [asked], root=FOLDER)
    return answer


@pytest.mark.parametrize(("rule", "number", "version", "stage", "text"), REFUSED)
def test_what_is_called_refused_is_refused(rule, number, version, stage, text):
    answer = trained(rule, number, version)
    assert answer.get("refused") == stage, answer
    assert text in answer["text"]


@pytest.mark.parametrize(
    ("rule", "number", "version", "shows"),
    [(*each[:3], each[4]) for each in SILENT],
    ids=[f"{each[0]}-{each[1]}-{each[2]}" for each in SILENT],
)
def test_what_is_called_silent_shows_in_the_run(rule, number, version, shows):
    answer = trained(rule, number, version)
    assert "refused" not in answer, answer
    assert shows(answer), answer


def test_zero_steps_meant_no_limit_once():
    assert trained("max-steps-of-zero", 0, FIRST)["steps"] == 9


def test_a_restart_of_one_cycle_is_a_cosine():
    restarts = trained("restarts-of-one-cycle", 0, NEW)
    cosine = trained("restarts-of-one-cycle", 0, OLD)
    assert restarts["rates"] == pytest.approx(cosine["rates"])


def test_the_wrong_end_of_a_metric_is_the_default():
    assert trained("best-model-upside-down", 0, NEW)["greater"] is True


@cache
def engines(version: str) -> list[Any]:
    """What a release says to the rows of DEEPSPEED and NEWER; then of layers recomputed without
    reentrance and with it. One process answers all."""
    read_of = [
        {"verb": "read", "config": json.loads(bad(rule, number)["ds_config.json"]), "world": world}
        for rule, number, world, *_ in (*DEEPSPEED, *NEWER)
    ]
    recomputed = [
        {"verb": "recompute", "config": STAGE_3, "reentrant": reentrant}
        for reentrant in (False, True)
    ]
    script = "lints.consumers.deepspeed_runs"
    return ask(environment("deepspeed", version), script, [*read_of, *recomputed], root=FOLDER)


@pytest.mark.parametrize("row", DEEPSPEED)
@pytest.mark.parametrize("version", ["0.14.5", "0.19.8"])
def test_what_deepspeed_refuses_is_refused(row, version):
    answer = engines(version)[DEEPSPEED.index(row)]
    assert "refused" in answer, answer
    assert row[-1] in answer["text"]


def test_zenflow_selects_no_more_often_than_it_updates():
    answer = engines("0.19.8")[len(DEEPSPEED)]
    assert answer["refused"] == "zenflow"
    assert "Select interval must be greater or equal to update interval" in answer["text"]


def test_a_width_in_the_inner_block_is_none():
    answer = engines("0.19.8")[len(DEEPSPEED) + 1]
    assert "refused" not in answer, answer
    assert answer["ways"] == 0


def test_groups_of_experts_fill_the_processes():
    answer = engines("0.19.8")[len(DEEPSPEED) + 2]
    assert answer["refused"] == "experts"
    assert "must divide" in answer["text"]


@pytest.mark.parametrize(("version", "fails"), [("0.14.5", True), ("0.19.8", False)])
def test_frozen_weights_are_gone_when_they_are_recomputed(version, fails):
    """In releases before 0.19.3, by the variant that compares what it recomputes."""
    plain, reentrant = engines(version)[-2:]
    assert ("different metadata" in plain.get("text", "")) is fails, plain
    assert reentrant == {}


def test_a_word_counts_as_true_to_deepspeed():
    config = json.loads(bad("boolean-as-text", 1)["ds_config.json"])
    answer = read("0.19.8", config)
    assert answer["untested"] == "False"
    assert answer["untested"]


def test_warmup_alone_never_decays():
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5, "warmup_max_lr": 0.1}},
    }
    answer = read("0.19.8", config)
    assert answer["rates"][-1] == pytest.approx(0.1)
