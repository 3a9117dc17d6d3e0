"""Where nobody writes the launcher's own file, the trainer's must say FSDP, or refuse."""

import pytest

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.targets.registry import REGISTRY

SPEC = """\
tunec: 1
model: llama-3.1-8b-instruct
method: full
engine: fsdp
data: {train: org/data, samples: 5000, sequence: 2048}
hardware: a100-80g-x8
"""
SECOND = "pin: {fsdp.version: 2}\n"
KEPT = "pin: {fsdp.version: 1, fsdp.sharding: grad_op}\n"


def compiled(text, *names):
    loaded = load_text(text, targets=REGISTRY.names())
    assert loaded.spec, loaded.diagnostics
    asked = [REGISTRY.resolve(name, loaded.spec.software) for name in names]
    return compile_spec(loaded, asked)


@pytest.mark.parametrize(
    ("more", "names", "refused"),
    [
        (SECOND, ("huggingface@4.57",), True),
        (SECOND, ("huggingface@4.57", "accelerate@1.12"), False),
        (SECOND, ("huggingface@5.0",), False),
        (KEPT, ("huggingface@4.57",), False),
        (KEPT, ("huggingface@5.21",), True),
        (KEPT, ("huggingface@5.23",), True),
        (KEPT, ("huggingface@5.18", "accelerate@1.14"), False),
    ],
)
def test_what_no_file_says_is_refused(more, names, refused):
    result = compiled(SPEC + more, *names)
    errors = [each for each in result.diagnostics if each.severity == "error"]
    assert [each.id for each in errors] == ["E0901"] * refused, errors


def test_a_plan_of_one_file_is_started_plainly():
    plan = compiled(SPEC, "huggingface").planned.plan
    assert plan.launch.launcher == "torchrun"
    assert compiled(SPEC, "huggingface", "launch").planned.plan.launch.launcher == "accelerate"


@pytest.mark.parametrize("target", ["llamafactory", "ms-swift"])
def test_a_trainer_whose_own_words_come_first_is_started_by_no_launcher_with_flags(target):
    """DeepSpeed's launcher puts `--local_rank` before them."""
    asked = SPEC.replace("engine: fsdp", "engine: deepspeed")
    left = compiled(asked, target)
    assert left.planned.plan.launch.launcher == "torchrun"
    named = compiled(f"{asked}launcher: deepspeed\n", target)
    assert [each.id for each in named.diagnostics if each.severity == "error"] == ["E0905"]


def test_a_users_own_script_gets_no_rank_before_its_arguments():
    own = SPEC.replace("engine: fsdp", "engine: deepspeed") + "run: {script: train.py}\n"
    assert compiled(own, "huggingface", "launch").planned.plan.launch.launcher == "torchrun"
    named = compiled(f"{own}launcher: deepspeed\n", "huggingface", "launch")
    assert named.planned.plan.launch.launcher == "deepspeed"
    raw = compiled(own, "deepspeed", "launch")
    assert raw.planned.plan.launch.launcher == "deepspeed", "it may need `--local_rank`"
