"""Whatever is done to files, translating them raises nothing."""

import json
from random import Random

import pytest

from tunec.compiler.lints.environment import Environment
from tunec.compiler.translate.translate import translate_texts
from tunec.targets.registry import TARGETS

READABLE = TARGETS.readable()
FILES = {
    "training_args.yaml": (
        "output_dir: out\nper_device_train_batch_size: 4\nlearning_rate: 1.0e-5\nbf16: true\n"
        "deepspeed: ds_config.json\nwarmup_steps: 10\nsave_strategy: epoch\ntf32: true\n"
        "gradient_checkpointing: true\nmax_steps: 100\n"
    ),
    "ds_config.json": json.dumps(
        {
            "train_micro_batch_size_per_gpu": "auto",
            "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
            "bf16": {"enabled": "auto"},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95]}},
        },
        indent=1,
    ),
    "train.sh": (
        "export NCCL_DEBUG=INFO\nRATE=${1:-1e-5}\n"
        "accelerate launch --num_processes 8 train.py --output_dir out --learning_rate $RATE\n"
    ),
    "accelerate.yaml": (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n"
        "num_machines: 1\nmixed_precision: bf16\nfsdp_config:\n  fsdp_sharding_strategy: 1\n"
    ),
    "finetuning.sh": (
        "python -m llama_cookbook.finetuning --model_name m --use_peft True --use_fp16 False\n"
    ),
}
WORDS = ("", "null", "-1", "0", "1e999", "true", "[]", "{}", "auto", "'", "${X}", "\x00", "9" * 40)


def mangled(text: str, random: Random) -> str:
    lines = text.splitlines()
    at = random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, random.choice(lines))
        case 2:
            head, mark, _ = lines[at].partition(random.choice((":", " ", "=")))
            lines[at] = head + mark + random.choice(WORDS)
        case _:
            cut = random.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + random.choice(WORDS) + lines[at][cut:]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("number", range(60))
def test_nothing_raises(number):
    random = Random(number)  # noqa: S311
    names = random.sample(sorted(FILES), random.randrange(1, 4))
    texts = {name: mangled(FILES[name], random) for name in names}
    asked = tuple(TARGETS.resolve(name) for name in random.sample(sorted(TARGETS), 2))
    result = translate_texts(texts, asked, READABLE, Environment(world=random.choice((None, 8))))
    assert result.ok == bool(result.artifacts)
    for each in result.diagnostics:
        assert each.message == each.message.strip().removesuffix(".")
        assert each.span is not None
