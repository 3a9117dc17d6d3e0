"""A program beside its command says what its flags come to: each case has a twin that is told."""

from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

_COMMAND = (
    "export CUDA_VISIBLE_DEVICES=0,1\n"
    "python tools/train.py --output_dir out --bf16 true --learning_rate 1e-5 --num_train_epochs 1"
    " --model_name_or_path a/b --per_device_train_batch_size 1 --logging_steps 5\n"
)
_OF_TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "args = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
)
_OF_ITS_OWN = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
_TRIED = """from trl import DPOConfig, DPOTrainer
args = DPOConfig(output_dir="out")
{0}
"""
_OLD = "DPOTrainer(model, args=args, tokenizer=t)"


@pytest.mark.parametrize(
    ("program", "is_told"),
    [
        (_OF_TRAINER, True),
        (_OF_TRAINER + "model.model_parallel = True\n", False),
        (_OF_ITS_OWN, False),
        ("from evaluate import load\nload('pope').compute()\n", False),
    ],
)
def test_devices_of_a_process_are_the_programs_own_matter(
    program: str, is_told: bool, tmp_path: Path
) -> None:
    texts = {"train.sh": _COMMAND, "tools/train.py": program}
    told = _told("several-devices-in-one-process", texts, tmp_path)
    assert bool(told & {"error", "warning"}) == is_told


@pytest.mark.parametrize(
    ("call", "is_told"), [(_OLD, True), (f"try:\n    {_OLD}\nexcept TypeError:\n    pass", False)]
)
def test_what_a_script_tries_first_is_not_told(call: str, is_told: bool, tmp_path: Path) -> None:
    texts = {"train.py": _TRIED.format(call), "requirements.txt": "trl==0.29.0\n"}
    found = lint(tmp_path, texts, ["."]).names
    assert ("trainer-argument-moved" in found) == is_told


_DS = '{{"train_micro_batch_size_per_gpu": 1, "checkpoint": {{"tag_validation": "{0}"}}}}'
_OMEGA = "gradient_clipping: {0}\nzero_optimization: {{stage: 2, reduce_bucket_size: 5e8}}\n"
_ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {0}\nmixed_precision: bf16\n"
_FSDP = _ACCELERATE.format("FSDP") + "fsdp_config: {{fsdp_version: 2}}\nnum_processes: 1{0}\n"
_FORK = _ACCELERATE.format("MULTI_GPU") + "num_processes: 2\n{0}: {{enabled: true}}\n"
_PURE = (
    "model_name_or_path: a/b\ndataset: alpaca_en_demo\ntemplate: default\noutput_dir: out\n"
    "stage: sft\ndo_train: true\nfinetuning_type: full\npure_bf16: true\nlearning_rate: 0.00001\n"
    "{0}\n"
)
_VIDEO = (
    "model_name_or_path: Qwen/Qwen3-VL-8B-Instruct\ndataset: {0}\ntemplate: qwen3_vl\n"
    "output_dir: out\nstage: sft\ndo_train: true\nfinetuning_type: full\ncutoff_len: 1024\n"
    "video_max_pixels: 16384\n"
)
_MAPPED = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{0}
model = AutoModelForCausalLM.from_pretrained("a/b", device_map="auto")
Trainer(model, TrainingArguments(output_dir="out"))
"""
_RECORDED = '{{"output_dir": "out", "learning_rate": 1e-5, "max_steps": "many"{0}}}'
_ENGINE = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
_START = (
    "accelerate launch --multi_gpu --deepspeed_config_file ds.json{0} train.py"
    " --output_dir out --bf16 true --learning_rate 1e-5 --per_device_train_batch_size 1"
)
_KEPT = """import peft
config = peft.LoraConfig(r=8, lora_alpha=0)
{0}
"""


def _pair(rule: str, name: str, text: str, *words: str) -> tuple[str, str, list[str]]:
    return rule, name, [text.format(each) for each in words]


_PAIRS = {
    "a word in any letters": _pair("value-out-of-range", "ds.json", _DS, "none", "ignore"),
    "a number as OmegaConf reads it": _pair(
        "number-as-text", "ds_config.yaml", _OMEGA, "1.0", "${norm}"
    ),
    "a number of processes that the command counts anew": _pair(
        "fsdp-of-one-process", "accelerate.yaml", _FSDP, "", "  # overridden by --num_processes"
    ),
    "a key of another accelerate": _pair(
        "key-of-none", "accelerate.yaml", _FORK, "kp_config", "kt_config"
    ),
    "steps above the rate": _pair(
        "bf16-updates-lost", "run.yaml", _PURE, "optim: adamw_torch", "use_apollo: true"
    ),
    "videos of a set of images": _pair(
        "video-longer-than-sequence", "run.yaml", _VIDEO, "mllm_video_demo", "llava_1k_en"
    ),
    "the record of a run": _pair(
        "value-of-another-type", "args.json", _RECORDED, "", ', "_n_gpu": 1'
    ),
    "the record of a run of ms-swift": _pair(
        "value-of-another-type", "args.json", _RECORDED, "", ', "global_world_size": 8'
    ),
    "an adapter's config that is written down": _pair(
        "lora-alpha-of-zero",
        "merge.py",
        _KEPT,
        "model = peft.get_peft_model(base, config)",
        "peft_config = config.to_dict()",
    ),
}


@pytest.mark.parametrize("name", _PAIRS)
def test_what_nobody_is_hurt_by_is_a_note_at_most(name: str, tmp_path: Path) -> None:
    rule, at, texts = _PAIRS[name]
    severities = [_told(rule, {at: text}, tmp_path) for text in texts]
    assert severities[0] & {"error", "warning"}
    assert not severities[1] & {"error", "warning"}


def _told(rule: str, files: dict[str, str], folder: Path) -> set[str]:
    return {e["severity"] for e in lint(folder, files, ["."]).findings if e["id"] == rule}


@pytest.mark.parametrize(
    ("asked", "severity"), [("", "error"), ("if is_distributed:\n    model = load()", "note")]
)
def test_a_map_beside_a_question_of_how_it_is_started(
    asked: str, severity: str, tmp_path: Path
) -> None:
    files = {"run.sh": "torchrun --nproc_per_node 4 train.py\n", "train.py": _MAPPED.format(asked)}
    assert _told("device-map-in-distributed-run", files, tmp_path) == {severity}


def test_a_file_of_an_engine_that_is_not_started_holds_nothing(tmp_path: Path) -> None:
    rule = "batch-size-left-out"
    files = {"ds.json": _ENGINE, "run.sh": _START.format(" --use_deepspeed")}
    assert _told(rule, files, tmp_path) & {"warning", "error"}
    unread = files | {"run.sh": _START.format("")}
    assert not _told(rule, unread, tmp_path) & {"warning", "error"}
    assert _told("engine-flags-unread", unread, tmp_path) == {"error"}


def test_words_below_a_folder_of_data_are_no_configs(tmp_path: Path) -> None:
    start = "python train.py {0}/answers.json --output_dir out --learning_rate 1e-5 --bf16 true\n"
    told = [
        _told("missing-file", {"run.sh": start.format(each), "train.py": "pass\n"}, tmp_path)
        for each in ("configs", "data/nq")
    ]
    assert told == [{"warning"}, {"note"}]


def test_a_variable_that_the_script_guards_is_not_misspelt(tmp_path: Path) -> None:
    start = "{0}VISION_RATE=1\npython train.py --output_dir $VISION_RTE --learning_rate 1e-5\n"
    rule = "script-variable-misspelt"
    assert _told(rule, {"run.sh": start.format("")}, tmp_path) == {"warning"}
    guard = 'echo "${VISION_RTE:+set}"\n'
    assert _told(rule, {"run.sh": start.format(guard)}, tmp_path) == set()


def test_a_precision_that_is_written_as_off_is_meant(tmp_path: Path) -> None:
    start = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out{0}"
    start += " --learning_rate 1e-5 --per_device_train_batch_size 1 --num_train_epochs 1\n"
    block = '{"bf16": {"enabled": "auto"}, "train_batch_size": "auto", '
    engine = block + '"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
    told = [
        _told(
            "automatic-precision-off", {"ds.json": engine, "run.sh": start.format(each)}, tmp_path
        )
        for each in ("", " --bf16 False")
    ]
    assert told == [{"warning"}, {"note"}]


def test_a_remark_that_asks_something_is_no_magic_of_a_notebook(tmp_path: Path) -> None:
    import json

    lines = ["from transformers import TrainingArguments\n", "args = TrainingArguments(\n"]
    lines += ["    output_dir='out',\n", "    learning_rate=1e-5, # 3e-4?\n", ")\n"]
    cell = {"cell_type": "code", "source": lines, "outputs": [], "metadata": {}}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    assert "E0104" not in lint(tmp_path, {"train.ipynb": json.dumps(book)}, ["."]).names


_START_OF = (
    "torchrun --nproc_per_node 2 tools/train.py --model_name_or_path a/b --output_dir out"
    " --per_device_train_batch_size 1 --learning_rate 1e-5 --num_train_epochs 1 --bf16 true{0}\n"
)
_HEIR = """import transformers
from dataclasses import dataclass, field
@dataclass
class TrainingArguments(transformers.TrainingArguments):
    {0}
parser = transformers.HfArgumentParser((TrainingArguments,))
"""
_FACTORY = (
    "llamafactory-cli train --stage sft --do_train --model_name_or_path a/b --dataset d"
    " --template default --finetuning_type lora --output_dir out --do_eval\n"
)
_WARMS = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "scheduler": '
_WARMS += '{"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}}'
_OTHER = _START_OF.format(" --fp16 false --deepspeed ds.json")
_TWINS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "a value that a caller gives": (
        "lora-alpha-of-zero",
        {"train.py": _KEPT.format("peft.get_peft_model(base, config)")},
        {
            "train.py": "import peft\n\ndef adapt(base, alpha=0):\n"
            "    config = peft.LoraConfig(r=8, lora_alpha=alpha)\n"
            "    return peft.get_peft_model(base, config)\n"
        },
    ),
    "a flag that the program parses itself": (
        "value-out-of-range",
        {"run.sh": _START_OF.format(" --optim torch_adaw"), "tools/train.py": _OF_TRAINER},
        {
            "run.sh": _START_OF.format(" --optim torch_adaw"),
            "tools/train.py": _OF_TRAINER + 'parser.add_argument("--optim", default="sgd")\n',
        },
    ),
    "a field that a class of the repository has": (
        "value-out-of-range",
        {"run.sh": _START_OF.format(" --optim torch_adaw"), "tools/train.py": _OF_TRAINER},
        {
            "run.sh": _START_OF.format(" --optim torch_adaw"),
            "tools/train.py": _HEIR.format('optim: str = field(default="sgd")'),
        },
    ),
    "a copy of the program": (
        "refused-without",
        {"run.sh": _FACTORY},
        {"run.sh": _FACTORY, "src/llmtuner/hparams.py": "class FinetuningArguments:\n    pass\n"},
    ),
    "a file that a remark names": (
        "scheduler-overridden",
        {
            "run.sh": _START_OF.format(" --lr_scheduler_type cosine --deepspeed ds.json"),
            "other.sh": _OTHER,
            "ds.json": _WARMS,
        },
        {
            "run.sh": _START_OF.format(" --lr_scheduler_type cosine \\\n  # --deepspeed ds.json"),
            "other.sh": _OTHER,
            "ds.json": _WARMS,
        },
    ),
}


@pytest.mark.parametrize("name", _TWINS)
def test_what_is_only_taken_to_be_so_is_a_note(name: str, tmp_path: Path) -> None:
    rule, *twins = _TWINS[name]
    told = []
    for at, files in enumerate(twins):
        (folder := tmp_path / str(at)).mkdir()
        told.append(_told(rule, files, folder) & {"error", "warning"})
    assert told[0]
    assert not told[1]


@pytest.mark.parametrize(
    ("declared", "is_told"), [("fp16: bool = field(default=True)", False), ("other: int = 1", True)]
)
def test_a_class_of_the_repository_has_defaults_of_its_own(
    declared: str, is_told: bool, tmp_path: Path
) -> None:
    engine = '{"fp16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}'
    start = _START_OF.replace(" --bf16 true", "").format(" --deepspeed ds.json")
    files = {"run.sh": start, "ds.json": engine, "tools/train.py": _HEIR.format(declared)}
    assert bool(_told("deepspeed-and-trainer-differ", files, tmp_path)) == is_told


@pytest.mark.parametrize(
    ("flag", "is_told"),
    [("eval_step", False), ("learning_rat", False), ("learning_rata", True), ("evals_steps", True)],
)
def test_argparse_takes_a_flag_for_the_one_that_begins_so(
    flag: str, is_told: bool, tmp_path: Path
) -> None:
    start = f"swift sft --model a/b --dataset d.jsonl --output_dir out --{flag} 1\n"
    assert bool(_told("misspelt-key", {"run.sh": start}, tmp_path)) == is_told


def test_a_merge_of_models_is_no_file_of_axolotls(tmp_path: Path) -> None:
    merge = "base_model: a/b\nmerge_method: ties\nmodels:\n- model: a/c\ndtype: bfloat16\n"
    found = lint(tmp_path, {"merge.yaml": merge, "run.sh": _FACTORY}, ["."]).names
    assert not {"key-of-no-release", "word-not-taken"} & set(found)
