"""What no run does is a note at most, each with a twin that is told; no key of a config is lost."""

from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

_KEY = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "num_machines": 2}'
_SOUND = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
_START = "deepspeed --num_gpus 2 train.py --deepspeed {0} --output_dir out --learning_rate 1e-5\n"
_PARSED = "import deepspeed\np = deepspeed.add_config_arguments(p)\n"
_PARSED += "deepspeed.initialize(args=p.parse_args(), model=model)\n"
_MADE = "import deepspeed\ndeepspeed.initialize(config={'train_batch_size': 1})\n"
_LATE = '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": true}'
_ARGUMENTS = """from transformers import Trainer, TrainingArguments
old = TrainingArguments("out", warmup_ratio=0.1, lr_scheduler_type="constant")
new = TrainingArguments("out", warmup_ratio=0.1, lr_scheduler_type="cosine")
# Trainer(args=old)
Trainer(model=model, args={0})
"""
_FIRE = """import fire
from transformers import Trainer, TrainingArguments
def main(engine: str = None, steps: int = 1):
    Trainer(model=model, args=TrainingArguments("out", deepspeed=engine, max_steps=steps))
fire.Fire(main)
"""
_FLAGS = "python train.py --engine {0}--steps 5\n"
_FSDP = "torchrun --nproc_per_node 2 train.py --output_dir out --learning_rate 1e-5 --fsdp {0}\n"
_JOBS = "{0}torchrun --nproc_per_node 4 train.py --output_dir out --learning_rate 1e-5 &\n"
_BLOCK = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"
_BLOCK += "deepspeed_config: {zero_stage: 2}\n"
_ENGINE = "accelerate launch --config_file a.yaml{0} train.py\n"
_COUNT = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: {0}\n"
_COUNT += "num_processes: 8\n"
_BOTH = _START + "# deepspeed train.py --deepspeed {1}\n"
_HALF = '{"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1}'
_HEIR = "from transformers import HfArgumentParser, Trainer, TrainingArguments\nTrainer(model)\n"
_SET_LATE = "training_args.deepspeed = 'a.json'\n"
_LOOP = "from transformers import HfArgumentParser\nclass MyTrainer:\n    x = 1\nMyTrainer(args)\n"
_LONG = "torchrun train.py --model_name_or_path meta-llama/Llama-2-7b-hf --output_dir out"
_LONG += " --model_max_length 8192 --num_train_epochs 1 --per_device_train_batch_size 1"
_LONG += " --learning_rate 1e-5 --bf16 true --save_steps 5\n"
_STRETCHED = "def load(config):\n    config.rope_scaling = {'type': 'linear', 'factor': 2.0}\n"
_FAMILY = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
model_name = "meta-llama/Llama-2-7b-hf"
model = AutoModelForCausalLM.from_pretrained(model_name)
if {0}:
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["query_key_value"]))
"""
_NEWEST = {"requirements.txt": "transformers==4.57.1\n"}
_CASES = {
    "a file beside the one that is named": (
        "unknown-key",
        {"a.json": _KEY, "b.json": _SOUND, "run.sh": _START.format("a.json")},
        {"a.json": _KEY, "b.json": _SOUND, "run.sh": _START.format("b.json")},
    ),
    "a file where programs make their own": (
        "value-of-another-type",
        {"a.json": _LATE, "train.py": _PARSED, "run.sh": _START.format("a.json")},
        {"a.json": _LATE, "b.json": _LATE, "train.py": _MADE},
    ),
    "a file of tests": (
        "unknown-key",
        {"a.json": _KEY, "b.json": _SOUND},
        {"tests/fixtures/a.json": _KEY, "b.json": _SOUND},
    ),
    "arguments that no trainer gets": (
        "warmup-of-a-constant-rate",
        {"train.py": _ARGUMENTS.format("old")},
        {"train.py": _ARGUMENTS.format("new")},
    ),
    "an empty variable for its user": (
        "value-of-another-type",
        {"run.sh": _FLAGS.format(""), "train.py": _FIRE},
        {"run.sh": 'DS=""\n' + _FLAGS.format("$DS "), "train.py": _FIRE},
    ),
    "somebody's own version": (
        "fsdp-strategy-refused",
        {
            "run.sh": _FSDP.format("my_shard"),
            "train.py": _HEIR,
            "requirements.txt": "transformers==4.28.1\n",
        },
        {
            "run.sh": _FSDP.format("my_shard"),
            "train.py": _HEIR,
            "requirements.txt": "git+https://github.com/me/transformers.git\n",
        },
    ),
    "jobs on nodes of their own": (
        "port-taken",
        {"run.sh": 2 * _JOBS.format("")},
        {"run.sh": 2 * _JOBS.format("srun -n1 --gres=gpu:4 ")},
    ),
    "an engine that a flag starts": (
        "config-of-another-engine",
        {"a.yaml": _BLOCK, "run.sh": _ENGINE.format("")},
        {"a.yaml": _BLOCK, "run.sh": _ENGINE.format(" --use_deepspeed")},
    ),
    "a word for who starts the job": (
        "count-without-a-number",
        {"a.yaml": _COUNT.format("two")},
        {"a.yaml": _COUNT.format("HOST_NUM")},
    ),
    "one of several that nothing names": (
        "value-of-another-type",
        {"a.json": _LATE, "train.py": _PARSED, "run.sh": _START.format("a.json")},
        {"a.json": _LATE, "b.json": _LATE, "train.py": _PARSED},
    ),
    "a file that remarks alone name": (
        "unknown-key",
        {"a.json": _KEY, "b.json": _SOUND, "run.sh": _START.format("a.json")},
        {"a.json": _KEY, "b.json": _SOUND, "run.sh": _BOTH.format("b.json", "a.json")},
    ),
    "an example of a library's copy": (
        "unknown-key",
        {"peft/examples/a.json": _KEY},
        {"peft/examples/a.json": _KEY, "peft/setup.py": 'setup(name="peft")\n'},
    ),
    "arguments that get their file when they are made": (
        "deepspeed-and-trainer-differ",
        {"a.json": _HALF, "run.sh": _START.format("a.json"), "train.py": _HEIR},
        {"a.json": _HALF, "run.sh": _START.format("a.json"), "train.py": _HEIR + _SET_LATE},
    ),
    "a trainer of the repository's own": (
        "deepspeed-and-trainer-differ",
        {"a.json": _HALF, "run.sh": _START.format("a.json"), "train.py": _HEIR},
        {"a.json": _HALF, "run.sh": _START.format("a.json"), "train.py": _LOOP},
    ),
    "positions that the program stretches": (
        "longer-than-context",
        {"run.sh": _LONG, "train.py": "from models import load\n"},
        {"run.sh": _LONG, "train.py": "from models import load\n", "models.py": _STRETCHED},
    ),
    "an adapter for another family": (
        "lora-targets-match-nothing",
        {"train.py": _FAMILY.format("True")},
        {"train.py": _FAMILY.format("'falcon' in model_name")},
    ),
    "a file of the library's own block": (
        "key-of-another-release",
        {"a.json": '{"output_dir": "out", "split_batches": true, "bf16": true}', **_NEWEST},
        {"a.json": '{"split_batches": true, "dispatch_batches": null}', **_NEWEST},
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_what_no_run_does_is_a_note_at_most(name: str, tmp_path: Path) -> None:
    rule, *both = _CASES[name]
    told = [
        {e["severity"] for e in lint(tmp_path / str(n), files, ["."]).findings if e["id"] == rule}
        for n, files in enumerate(both)
    ]
    assert told[0] & {"error", "warning"}
    assert not told[1] & {"error", "warning"}


_ITS_KEY = "per_gpu_batch"
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\noutput_dir: out\npacking: true\nmax_length: 9\n"


@pytest.mark.parametrize("named", [".", "training_args.yaml"])
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{_ITS_KEY}: 2\n", "unrecognised-file"),
        (f"output_dir: out\n{_ITS_KEY}: 2\n", "key-of-no-class"),
        (f"output_dir: out\n{_ITS_KEY}: 2\nlearning_rate: 1.0e-4\n", "key-of-no-class"),
        (f"{_SFT}{_ITS_KEY}: 2\n", "key-of-no-class"),
        (f"{_ITS_KEY}: 2\nbatch_accumulation: 4\nlr: 0.1\n", "unrecognised-file"),
    ],
)
def test_a_key_that_is_no_field_is_told(text: str, rule: str, named: str, tmp_path: Path) -> None:
    answer = lint(tmp_path, {"training_args.yaml": text}, [named])
    told = [each for each in answer.findings if each["id"] == rule]
    assert [each["severity"] for each in told] == ["warning"]
    assert _ITS_KEY in told[0]["message"] + " ".join(told[0]["notes"])
    assert "`per_device_train_batch_size`" in told[0]["help"] + " ".join(told[0]["notes"]) or (
        "`per_gpu_train_batch_size`" in " ".join(told[0]["notes"])
    )


def test_keys_of_a_script_s_own_class_are_a_note(tmp_path: Path) -> None:
    text = "output_dir: out\nmy_corpus: a\nprompt_column_of_mine: b\nlearning_rate: 1.0e-4\n"
    answer = lint(tmp_path, {"training_args.yaml": text}, ["."])
    told = {each["severity"] for each in answer.findings if each["id"] == "key-of-no-class"}
    assert told == {"note"}
    own = "model_name_or_path: m\ndataset_name: d\noutput_dir: out\npreprocessing_num_workers: 4\n"
    answer = lint(tmp_path, {"training_args.yaml": own}, ["."])
    assert "key-of-no-class" not in answer.names, "these are known of scripts"


def test_a_key_that_the_repository_s_own_source_declares_is_not_told(tmp_path: Path) -> None:
    files = {
        "training_args.yaml": f"output_dir: out\n{_ITS_KEY}: 2\n",
        "train.py": "from dataclasses import dataclass\n\n@dataclass\nclass Mine:\n"
        f"    {_ITS_KEY}: int = 1\n",
    }
    (tmp_path / ".git").mkdir()
    assert "key-of-no-class" not in lint(tmp_path, files, ["."]).names


def test_a_stranger_of_another_name_is_still_passed_over(tmp_path: Path) -> None:
    answer = lint(tmp_path, {"values.yaml": "replicas: 3\n"}, ["."])
    assert answer.findings == []
    assert "values.yaml" in answer.err
