"""What a folder has no witness for is lowered: nothing starts it, or something comes in between."""

import json
from pathlib import Path

import pytest

import tunec
from tunec.compiler.lints.mentions import Mentions

ADAPTER = """from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, TrainingArguments, Trainer
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--use_lora", action="store_true")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("a/b")
{condition}
    model = get_peft_model(model, LoraConfig(r=0, target_modules=["q_proj"]))
trainer = Trainer(model, TrainingArguments(output_dir="out"))
trainer.train()
"""
INSIDE = """def adapted(model):
    return get_peft_model(model, LoraConfig(r=0, target_modules=["q_proj"]))


if args.use_lora:
    model = adapted(model)
"""
RANK = "lora-rank-not-positive"
STARTS = "python train.py"


def written(path: Path, files: dict[str, str]) -> Path:
    (path / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, "utf-8")
    return path


def told(path: Path, rule: str) -> list[tuple[str, str]]:
    """The levels of a rule's findings, each with the sentence that stands last."""
    found = [each for each in tunec.lint(path).diagnostics if each.id == rule]
    return [(each.severity, each.notes[-1] if each.notes else "") for each in found]


@pytest.mark.parametrize(
    ("condition", "start", "expected"),
    [
        ("if args.use_lora:", STARTS, "note"),
        ("if args.use_lora:", f"{STARTS} --use_lora", "error"),
        ("if args.use_lora:", f"{STARTS} --use_lora False", "note"),
        ("if args.use_lora:", f"{STARTS} --use_lora_too", "note"),
        ("if not args.use_lora:", f"{STARTS} --use_lora", "note"),
        ("if args.do_train:", STARTS, "error"),
        ("if True:", STARTS, "error"),
    ],
)
def test_what_stands_under_a_condition_is_an_error_where_a_command_meets_it(
    condition: str, start: str, expected: str, tmp_path: Path
) -> None:
    files = {"train.py": ADAPTER.format(condition=condition), "run.sh": f"{start}\n"}
    ((level, why),) = told(written(tmp_path, files), RANK)
    assert level == expected
    assert ("condition that no command" in why) is (expected == "note")


@pytest.mark.parametrize(("start", "expected"), [("", "note"), (" --use_lora", "error")])
def test_a_function_that_is_called_under_a_condition_stands_under_it(
    start: str, expected: str, tmp_path: Path
) -> None:
    script = ADAPTER.replace(ADAPTER[ADAPTER.index("{") : ADAPTER.index("trainer =")], INSIDE)
    path = written(tmp_path, {"train.py": script, "run.sh": f"{STARTS}{start}\n"})
    assert [level for level, _ in told(path, RANK)] == [expected]


def test_a_script_that_the_user_names_is_used(tmp_path: Path) -> None:
    script = ADAPTER.format(condition="if args.use_lora:")
    path = written(tmp_path, {"train.py": script}) / "train.py"
    assert [level for level, _ in told(path, RANK)] == ["error"]


ENGINE = '{"train_batch_size": 8, "fp16": {"enabled": true, "opt_level": "O2"}}'
START = "deepspeed train.py --deepspeed ds.json\n"
PACKS = "/__init__.py"


@pytest.mark.parametrize(("package", "expected"), [("deepspeed", "note"), ("other", "error")])
def test_a_copy_of_the_program_may_know_other_keys(
    package: str, expected: str, tmp_path: Path
) -> None:
    files = {"ds.json": ENGINE, "run.sh": START, f"lib/{package}{PACKS}": ""}
    ((level, _),) = told(written(tmp_path, files), "unknown-key")
    assert level == expected


TWICE = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\ncutoff_len: 1\ncutoff_len: 2\n"
FACTORY = '[project]\nname = "llamafactory"\n'
EXTRA = "examples/extras/run.yaml"
OTHER = "examples/train_lora/run.yaml"


@pytest.mark.parametrize(
    ("place", "project", "start", "expected"),
    [
        (EXTRA, "pyproject.toml", "", "note"),
        (EXTRA, "pyproject.toml", f"llamafactory-cli train {EXTRA}\n", "error"),
        (OTHER, "pyproject.toml", f"llamafactory-cli train {OTHER}\n", "error"),
        (f"lib/{EXTRA}", "lib/setup.cfg", "", "note"),
        (f"lib/{EXTRA}", "lib/setup.cfg", f"llamafactory-cli train lib/{EXTRA}\n", "error"),
        (f"lib/{EXTRA}", "lib/pyproject.toml", "", "note"),
        (EXTRA, "elsewhere/setup.cfg", f"llamafactory-cli train {EXTRA}\n", "error"),
        ("lavis/projects/run.yaml", f"lavis{PACKS}", "", "note"),
        ("vendor/other/run.yaml", "elsewhere/setup.cfg", "", "note"),
        (
            "vendor/other/run.yaml",
            "elsewhere/setup.cfg",
            "llamafactory-cli train vendor/other/run.yaml\n",
            "error",
        ),
        (EXTRA, "setup.cfg", "llamafactory-cli train own/run.yaml\n", "error"),
        (f"lib/{EXTRA}", "lib/setup.cfg", "llamafactory-cli train run.yaml\n", "error"),
    ],
)
def test_what_a_copy_of_a_library_brings_is_a_note_unless_a_script_names_it(
    place: str, project: str, start: str, expected: str, tmp_path: Path
) -> None:
    text = FACTORY.replace("[project]", "[metadata]") if project.endswith("cfg") else FACTORY
    files = {place: TWICE, project: text, "start.sh": start or "llamafactory-cli\n"}
    assert [level for level, _ in told(written(tmp_path, files), "E0107")] == [expected]


SFT = "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nmax_length: 1024\n"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("trl sft --config a.yaml\n", "note"),
        ("trl sft --config b.yaml\n", "error"),
        ('trl sft --config "configs/$NAME.yaml" || trl sft --config a.yaml\n', "error"),
        ("pip install trl\n", "note"),
    ],
)
def test_what_is_in_a_file_that_nothing_starts_is_a_note(
    start: str, expected: str, tmp_path: Path
) -> None:
    twice = f"{SFT}max_length: 2048\n"
    files = {"configs/a.yaml": SFT, "configs/b.yaml": twice, "start.sh": start}
    assert [level for level, _ in told(written(tmp_path, files), "E0107")] == [expected]


OWN = """from trl import DPOTrainer, TrlParser


class OtherTrainer(DPOTrainer):
    def {method}(self, *args):
        return 0
"""
DPO = "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nbeta: 0.1\nloss_type: other\n"


@pytest.mark.parametrize(("method", "expected"), [("dpo_loss", "note"), ("log", "error")])
def test_a_trainer_of_the_repository_may_have_a_loss_of_its_own(
    method: str, expected: str, tmp_path: Path
) -> None:
    start = "python train.py --config dpo.yaml\n"
    files = {"dpo.yaml": DPO, "train.py": OWN.format(method=method), "run.sh": start}
    levels = [level for level, _ in told(written(tmp_path, files), "dpo-loss-unknown")]
    assert levels == [expected]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"run.py": "print()\n"}, "note"),
        ({"run.py": "print()\n", "README.md": "LLaMA-Factory trains it.\n"}, "note"),
        ({"run.py": "print()\n", "README.md": "llamafactory-cli train run.yaml\n"}, "warning"),
        ({"run.sh": "llamafactory-cli train configs/run.yaml\n"}, "error"),
        ({"README.md": "It is trained.\n"}, "error"),
        ({"run.py": "'configs/run.yaml'\n", "README.md": "LLaMA-Factory trains.\n"}, "error"),
    ],
)
def test_a_file_whose_program_nothing_names_may_be_another_program_s(
    other: dict[str, str], expected: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {"configs/run.yaml": TWICE, **other})
    assert [level for level, _ in told(path, "E0107")] == [expected]


UNREAD_WARMUP = ("lr_scheduler_type: constant\nwarmup_ratio: 0.1\n", "warmup-of-a-constant-rate")
CUT = ("python train.py \\\n  --bf16 True\n  --tf32 True\n", "command-cut-short")


@pytest.mark.parametrize(
    ("folder", "case", "expected"),
    [
        ("configs", UNREAD_WARMUP, "warning"),
        ("configs/archived", UNREAD_WARMUP, "note"),
        ("deprecated_scripts", UNREAD_WARMUP, "note"),
        ("scripts/older_versions", UNREAD_WARMUP, "note"),
        ("bold/scripts", UNREAD_WARMUP, "warning"),
        ("legacy", CUT, "error"),
    ],
)
def test_what_a_trainer_does_with_a_file_that_is_set_aside_is_a_note(
    folder: str, case: tuple[str, str], expected: str, tmp_path: Path
) -> None:
    text, name = case
    file = f"{folder}/run.{'sh' if text.startswith('python') else 'yaml'}"
    whole = text if file.endswith(".sh") else f"model_name_or_path: a/b\nstage: sft\n{text}"
    files = {file: whole, "start.sh": f"llamafactory-cli train {file}\nbash {file}\n"}
    assert [level for level, _ in told(written(tmp_path, files), name)] == [expected]


@pytest.mark.parametrize(
    ("options", "expected"), [("--gres=gpu:4 # gpu:${KIND}:4", []), ("--nodes=${N}", ["error"])]
)
def test_sbatch_reads_no_option_behind_a_remark(
    options: str, expected: list[str], tmp_path: Path
) -> None:
    job = f"#!/bin/bash\n#SBATCH {options}\ntorchrun train.py --bf16\n"
    path = written(tmp_path, {"job.sh": job})
    assert [level for level, _ in told(path, "batch-directive-not-read")] == expected


LAUNCHER = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: bf16\n"
)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("train_batch_size: auto", "note"),
        ("train_batch_size: 8", "error"),
        ("bf16: {enabled: true}", "note"),
        ("fp16: {enabled: false}", "note"),
        ("fp16: {enabled: true}", "error"),
        ("overlap_comm: false", "note"),
        ("overlap_comm: true", "warning"),
        ("sub_group_size: 1e9", "note"),
        ("sub_group_size: 1e8", "warning"),
        ("stage3_gather_16bit_weights_on_model_save: false", "note"),
        ("stage3_gather_16bit_weights_on_model_save: true", "warning"),
        ("activation_checkpointing: {cpu_checkpointing: true}", "note"),
    ],
)
def test_a_key_that_is_not_read_and_asks_for_nothing_is_a_note(
    block: str, expected: str, tmp_path: Path
) -> None:
    text = f"{LAUNCHER}deepspeed_config:\n  zero_stage: 2\n  {block}\n"
    path = written(tmp_path, {"accelerate.yaml": text})
    assert [level for level, _ in told(path, "key-of-none")] == [expected]


@pytest.mark.parametrize(
    ("block", "is_read"),
    [
        ("deepspeed_config: {zero_stage: 2, mixed_precision: fp16}", True),
        ("deepspeed_config: {zero_stage: 2, main_process_port: 29600}", True),
        ("fsdp_config: {fsdp_version: 2, mixed_precision: fp16}", False),
    ],
)
def test_a_key_of_the_launcher_in_a_block_is_its_argument(
    block: str, is_read: bool, tmp_path: Path
) -> None:
    path = written(tmp_path, {"accelerate.yaml": f"{LAUNCHER}{block}\n"})
    assert (told(path, "key-of-none") == []) is is_read


@pytest.mark.parametrize(("value", "expected"), [("[]", []), ("[a, 1]", ["error"])])
def test_an_empty_list_is_no_value_of_another_type(
    value: str, expected: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, {"train.yaml": f"{SFT}fsdp: {value}\n"})
    assert [level for level, _ in told(path, "value-of-another-type")] == expected


def test_sbatch_knows_the_older_name_of_its_tasks(tmp_path: Path) -> None:
    job = "#!/bin/bash\n#SBATCH --tasks-per-node=1\n#SBATCH --ntask-per-node=1\npython train.py\n"
    found = [each.message for each in tunec.lint(written(tmp_path, {"job.sh": job})).diagnostics]
    assert [each for each in found if "no option" in each] == [
        "sbatch has no option --ntask-per-node"
    ]


MERGE = "from transformers import HfArgumentParser\nfrom peft import PeftModel\nprint(PeftModel)\n"
TRAINS = "from transformers import TrainingArguments, Trainer\nTrainer(1).train()\n"


@pytest.mark.parametrize(("text", "expected"), [(MERGE, "note"), (TRAINS, "warning")])
def test_a_program_that_only_merges_is_given_several_devices_in_vain(
    text: str, expected: str, tmp_path: Path
) -> None:
    start = (
        "export CUDA_VISIBLE_DEVICES=0,1\npython run.py --output_dir out"
        " --per_device_train_batch_size 2 --learning_rate 1e-4\n"
    )
    path = written(tmp_path, {"run.py": text, "run.sh": start})
    assert [level for level, _ in told(path, "several-devices-in-one-process")] == [expected]


OLDER = (
    "CUDA_VISIBLE_DEVICES=0 python src/train_ppo.py --do_train --dataset a --dataset_dir data"
    " --finetuning_type lora --reward_model b --output_dir c --template default\n"
)


@pytest.mark.parametrize(("module", "expected"), [("utils", "note"), ("llamafactory", "warning")])
def test_a_program_before_llama_factory_reads_its_flags_otherwise(
    module: str, expected: str, tmp_path: Path
) -> None:
    text = f"from {module} import get_train_args\nget_train_args()\n"
    path = written(tmp_path, {"src/train_ppo.py": text, "run.sh": OLDER})
    assert [level for level, _ in told(path, "option-of-another-choice")] == [expected]


@pytest.mark.parametrize(("beside", "expected"), [("src", "note"), ("lib", "warning")])
def test_a_program_that_has_left_its_folder_is_started_by_nothing(
    beside: str, expected: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {f"{beside}/train.py": "import llamafactory\n", "run.sh": OLDER})
    assert [level for level, _ in told(path, "option-of-another-choice")] == [expected]


RECORD = "fsdp: ''\nfsdp_config:\n  min_num_params: {least}\n  xla: false\n"


@pytest.mark.parametrize(("least", "expected"), [("0", "note"), ("9", "warning")])
def test_a_record_of_all_arguments_asks_for_no_sharding(
    least: str, expected: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {"train.yaml": f"{SFT}{RECORD.format(least=least)}"})
    assert [level for level, _ in told(path, "fsdp-config-without-fsdp")] == [expected]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"run.sh": "python train.py --config sft.yaml\n", "train.py": "TrlParser()\n"}, "error"),
        ({"run.sh": "python train.py --config sft.yaml\n", "train.py": "read()\n"}, "warning"),
        (
            {"README.md": "python train.py --config sft.yaml\n", "train.py": "TrlParser()\n"},
            "warning",
        ),
        ({"README.md": "python train.py --config sft.yaml\n", "train.py": "read()\n"}, "note"),
        ({"run.sh": "x.py -c sft.yaml --packing no\n", "train.py": "TrlParser()\n"}, "note"),
        (
            {"run.sh": "a.py sft.yaml --packing no\nb.py sft.yaml\n", "train.py": "TrlParser()\n"},
            "error",
        ),
    ],
)
def test_the_weakest_premise_decides_and_two_leave_a_note(
    files: dict[str, str], expected: str, tmp_path: Path
) -> None:
    trained = {
        name: f"import trl\n{text}" if name == "train.py" else text for name, text in files.items()
    }
    path = written(tmp_path, {"sft.yaml": f"{SFT}packing: 'no'\n", **trained})
    assert [level for level, _ in told(path, "boolean-as-text")] == [expected]


@pytest.mark.parametrize(
    ("value", "expected"), [("GLOBAL", "note"), ("<size>", "note"), ("eight", "error")]
)
def test_a_word_that_stands_for_a_value_is_filled_in(
    value: str, expected: str, tmp_path: Path
) -> None:
    text = f'{{\n "train_batch_size": {value},\n "zero_optimization": {{"stage": 2}}\n}}\n'
    path = written(tmp_path, {"ds.json": text, "run.sh": "deepspeed x.py --deepspeed ds.json\n"})
    assert [level for level, _ in told(path, "E0105")] == [expected]


GETS = "from transformers import HfArgumentParser, Trainer\nimport deepspeed\n"
HANDS = "deepspeed.initialize(model=1, config='ds.json')\n"


@pytest.mark.parametrize(
    ("text", "flag", "expected"),
    [
        (HANDS, "", []),
        (HANDS, " --deepspeed ds.json", ["error"]),
        ("Trainer(1)\n", " --deepspeed ds.json", ["error"]),
    ],
)
def test_what_a_program_hands_to_deepspeed_itself_is_compared_with_nothing(
    text: str, flag: str, expected: list[str], tmp_path: Path
) -> None:
    files = {
        "ds.json": '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}',
        "run.sh": f"python train.py --output_dir o --per_device_train_batch_size 8 --bf16{flag}\n",
        "train.py": f"{GETS}{text}",
    }
    levels = [level for level, _ in told(written(tmp_path, files), "deepspeed-and-trainer-differ")]
    assert levels == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('dataset_text_field="text"', "note"),
        ('dataset_text_field="body"', "warning"),
        ("packing=False", "note"),
        ("packing=True", "warning"),
        ("max_seq_length=512", "note"),
        ("max_seq_length=256", "warning"),
    ],
)
def test_a_dropped_argument_that_asks_for_what_is_so_is_a_note(
    call: str, expected: str, tmp_path: Path
) -> None:
    text = (
        "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer\n"
        'model, _ = FastLanguageModel.from_pretrained("a/b", max_seq_length=512)\n'
        f'SFTTrainer(model=model, args=SFTConfig(output_dir="o"), {call}).train()\n'
    )
    pins = "unsloth==2025.12.10\ntrl==0.24.0\n"
    files = {"train.py": text, "run.sh": "python train.py\n", "requirements.txt": pins}
    assert [e for e, _ in told(written(tmp_path, files), "trainer-argument-moved")] == [expected]


@pytest.mark.parametrize(
    ("pin", "readme", "expected"),
    [
        ("trl<0.9.0", "", ["error"]),
        ("", 'pip install "trl<0.9.0"\n', []),
        ("trl @ git+https://github.com/huggingface/trl@4f3c2a1b9d", "", []),
    ],
)
def test_a_release_that_lacks_what_a_script_imports_is_another_script_s(
    pin: str, readme: str, expected: list[str], tmp_path: Path
) -> None:
    text = 'from trl import SFTConfig\nSFTConfig(output_dir="o", max_length=9, packing=False)\n'
    files = {"train.py": text, "run.sh": "python train.py\n", "README.md": readme}
    path = written(tmp_path, {**files, "requirements.txt": pin})
    levels = [level for level, _ in told(path, "field-of-another-release")]
    assert levels == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [("configs/a.yaml", True), ("configs/a.json", False), ("other/a.yaml", False)],
)
def test_a_folder_is_taken_by_files_of_one_kind(file: str, expected: bool, tmp_path: Path) -> None:
    path = written(tmp_path, {"run.sh": "trl sft --config configs/${NAME}.yaml\n"})
    assert Mentions((path,)).names_folder(file) is expected


FACTORY_FILE = "model_name_or_path: a/b\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
PREDICTS = f"{FACTORY_FILE}output_dir: out\ntemplate: llama3\n"
COMMAND = "llamafactory-cli train run.yaml\n"
OF_ITS_OWN = "python train.py run.yaml\n"


@pytest.mark.parametrize(
    ("start", "beside", "expected"),
    [
        (COMMAND, {"requirements.txt": "llamafactory==0.9.4\n"}, "error"),
        (COMMAND, {}, "warning"),
        (COMMAND, {f"src/llamafactory{PACKS}": ""}, "note"),
        (OF_ITS_OWN, {}, "note"),
    ],
)
def test_an_error_that_ends_a_run_is_shown_the_program_that_ends(
    start: str, beside: dict[str, str], expected: str, tmp_path: Path
) -> None:
    files = {"run.yaml": PREDICTS, "run.sh": start, "train.py": "import llamafactory\n", **beside}
    ((level, _),) = told(written(tmp_path, files), "refused-without")
    assert level == expected


@pytest.mark.parametrize(
    ("start", "expected"), [("bash own/run.sh\n", "note"), ("bash LLaVA/scripts/t.sh\n", "warning")]
)
def test_a_script_of_a_copy_of_llava_is_used_where_something_starts_it(
    start: str, expected: str, tmp_path: Path
) -> None:
    files = {
        "LLaVA/pyproject.toml": '[project]\nname = "llava"\n',
        "LLaVA/scripts/t.sh": "deepspeed a.py --deepspeed ./scripts/zero.json --bf16 True\n",
        "LLaVA/a.py": "from transformers import Trainer\n",
        "run.sh": start,
    }
    assert [level for level, _ in told(written(tmp_path, files), "missing-file")] == [expected]


@pytest.mark.parametrize(
    ("word", "expected"), [('"${ARGS[@]}" --module a', []), ("a.py", ["error"])]
)
def test_words_of_an_array_may_be_flags_of_the_launcher(
    word: str, expected: list[str], tmp_path: Path
) -> None:
    script = f"deepspeed {word} --master_port 1 --output_dir o\n"
    path = written(tmp_path, {"run.sh": script})
    assert [level for level, _ in told(path, "launcher-flags-behind-script")] == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [("args.resume_from_checkpoint", ["warning"]), ("True", [])],
)
def test_a_flag_to_resume_by_is_taken_by_what_hands_it_on(
    call: str, expected: list[str], tmp_path: Path
) -> None:
    source = f"{GETS}args = 1\nTrainer(1).train(resume_from_checkpoint={call})\n"
    start = "python train.py --output_dir o --bf16 True --resume_from_checkpoint True\n"
    path = written(tmp_path, {"train.py": source, "run.sh": start})
    assert [level for level, _ in told(path, "resume-from-a-word")] == expected


@pytest.mark.parametrize(("name", "expected"), [("single_gpu", "note"), ("zero2", "warning")])
def test_a_file_for_one_device_is_meant_for_one(name: str, expected: str, tmp_path: Path) -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
    start = f"accelerate launch --config_file {name}.yaml train.py --output_dir o\n"
    path = written(tmp_path, {f"{name}.yaml": text, "run.sh": start, "train.py": GETS})
    assert [level for level, _ in told(path, "zero-of-one-process")] == [expected]


@pytest.mark.parametrize(("folder", "expected"), [("/data/other", "note"), ("/data/mine", "error")])
def test_files_that_a_script_names_in_another_checkout_may_be_others(
    folder: str, expected: str, tmp_path: Path
) -> None:
    files = {
        "ds.json": '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}',
        "run.sh": f"cd {folder}\npython train.py --output_dir o --per_device_train_batch_size 8"
        " --bf16 --deepspeed ds.json\n",
        "train.py": f"{GETS}Trainer(1)\n",
    }
    (tmp_path / "mine").mkdir()
    levels = [e for e, _ in told(written(tmp_path / "mine", files), "deepspeed-and-trainer-differ")]
    assert levels == [expected]


SFT_OF_OPENRLHF = (
    "python -m openrlhf.cli.train_sft --pretrain a/b --dataset c --max_len 10 --zero_stage 2 --bf16"
)
PPO_OF_VERL = (
    "python3 -m verl.trainer.main_ppo data.shuffle_train_dataloader=True data.max_start_length=2"
    " data.max_obs_length=5 data.train_batch_size=64"
)


@pytest.mark.parametrize(
    ("required", "expected"),
    [("", 1), ("openrlhf>=0.9", 1), ("openrlhf>=0.10.4", 5), ("openrlhf==0.11.2", 5)],
)
def test_many_flags_that_an_older_release_has_are_one_note(
    required: str, expected: int, tmp_path: Path
) -> None:
    files = {"train.sh": f"{SFT_OF_OPENRLHF}\n", "requirements.txt": f"{required}\n"}
    levels = [level for level, _ in told(written(tmp_path, files), "flag-refused-by-openrlhf")]
    assert (levels == ["note"]) == (expected == 1)
    assert len(levels) >= expected


@pytest.mark.parametrize(
    ("required", "expected"), [("", {"note"}), ("verl==0.9.0", {"warning"}), ("torch", {"note"})]
)
def test_many_keys_that_no_known_release_has_are_one_note(
    required: str, expected: set[str], tmp_path: Path
) -> None:
    files = {"train.sh": f"{PPO_OF_VERL}\n", "requirements.txt": f"{required}\n"}
    found = told(written(tmp_path, files), "key-outside-its-section")
    assert {level for level, _ in found} == expected
    assert len(found) == (1 if expected == {"note"} else 3)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("@register_adv_est('mine')\ndef mine(): ...\n", "note"),
        ("@register_adv_est('yours')\ndef yours(): ...\n", "warning"),
    ],
)
def test_a_word_that_the_repository_registers_is_known(
    program: str, expected: str, tmp_path: Path
) -> None:
    start = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=mine data.train_batch_size=8\n"
    )
    files = {"train.sh": start, "mine.py": program, "requirements.txt": "verl==0.8.0\n"}
    path = written(tmp_path, files)
    levels = {level for level, _ in told(path, "rewarded-setting-refused")}
    assert levels <= ({"note"} if expected == "note" else {"warning", "error"})
    assert levels


@pytest.mark.parametrize(("name", "expected"), [("mine", "note"), ("other", "warning")])
def test_a_file_that_hydra_composes_for_a_program_here_is_its_own(
    name: str, expected: str, tmp_path: Path
) -> None:
    text = (
        "data: {train_batch_size: 8, my_files: a}\ntrainer: {nnodes: 1, n_gpus_per_node: 8}\n"
        "actor_rollout_ref: {model: {path: a}, rollout: {n: 4}}\n"
        "algorithm: {adv_estimator: grpo}\n"
    )
    program = (
        f'import verl\n@hydra.main(config_path="config", config_name="{name}")\ndef main(): ...\n'
    )
    start = "python -m verl.trainer.main_ppo --config-name mine.yaml\n"
    files = {"config/mine.yaml": text, "train.py": program, "run.sh": start}
    path = written(tmp_path, {**files, "requirements.txt": "verl==0.8.0\n"})
    assert [level for level, _ in told(path, "key-outside-its-section")] == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cat <<EOT > $CONFIG\n{}\nEOT", "note"),
        ("echo '{}' > ds.json", "note"),
        ("echo '{}' > other.json", "error"),
        ("cat $CONFIG", "error"),
    ],
)
def test_a_file_that_a_script_writes_is_not_what_is_read(
    line: str, expected: str, tmp_path: Path
) -> None:
    start = f"CONFIG=configs/ds.json\n{line}\ndeepspeed train.py --deepspeed_config $CONFIG\n"
    files = {"ds.json": '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3}'}
    path = written(tmp_path, {**files, "run.sh": start})
    assert [level for level, _ in told(path, "batch-product-mismatch")] == [expected]


def test_a_release_that_a_notebook_keeps_in_a_comment_is_its_own(tmp_path: Path) -> None:
    asks = "args = TrainingArguments('out', evaluation_strategy='no')\\n"
    cells = (
        "# %pip install -q transformers==4.44.0\\n",
        f"from transformers import TrainingArguments\\n{asks}",
    )
    shown = (f'{{"cell_type": "code", "source": "{each}"}}' for each in cells)
    text = f'{{"cells": [{", ".join(shown)}], "nbformat": 4}}'
    path = written(tmp_path, {"train.ipynb": text, "requirements.txt": "transformers==5.8.1\n"})
    assert told(path, "key-of-another-release") == []
    (path / "train.ipynb").write_text(text.replace("# %pip", "# see"), "utf-8")
    assert {level for level, _ in told(path, "key-of-another-release")} == {"error"}


@pytest.mark.parametrize(
    ("key", "expected"), [("total_episodes", []), ("num_generations", ["error"])]
)
def test_what_rloo_takes_from_its_base_came_with_the_base(
    key: str, expected: list[str], tmp_path: Path
) -> None:
    program = "from trl import RLOOConfig, RLOOTrainer\nfrom transformers import HfArgumentParser\n"
    program += "args, = HfArgumentParser(RLOOConfig).parse_args_into_dataclasses()\n"
    start = f"python rloo.py --output_dir out --rloo_k 2 --num_ppo_epochs 1 --{key} 8\n"
    files = {"rloo.py": program, "run.sh": start, "requirements.txt": "trl==0.13.0\n"}
    found = told(written(tmp_path, files), "field-of-another-release")
    assert [level for level, _ in found] == expected


@pytest.mark.parametrize(("target", "expected"), [("${config}", []), ("/dev/null", ["warning"])])
def test_a_file_that_a_script_writes_by_a_variable_is_not_missing(
    target: str, expected: list[str], tmp_path: Path
) -> None:
    script = f"NAME=small\nconfig=configs/ds_${{NAME}}.json\nsed s/A/B/ template.json > {target}\n"
    start = f"{script}deepspeed train.py --deepspeed --deepspeed_config ${{config}}\n"
    path = written(tmp_path, {"run.sh": start, "train.py": "import deepspeed\n"})
    assert [level for level, _ in told(path, "missing-file")] == expected


@pytest.mark.parametrize(("number", "expected"), [("5_000", []), ("5 000", ["error"])])
def test_a_number_that_python_reads_from_a_word_is_one(
    number: str, expected: list[str], tmp_path: Path
) -> None:
    program = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    program += "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    start = f"python train.py --output_dir out --save_steps '{number}'\n"
    files = {"train.py": program, "run.sh": start, "requirements.txt": "transformers==4.57.1\n"}
    found = told(written(tmp_path, files), "value-of-another-type")
    assert [level for level, _ in found] == expected


@pytest.mark.parametrize(("base", "expected"), [("", "note"), ("(TrainingArguments)", "warning")])
def test_a_parser_that_fills_its_own_classes_needs_their_fields_alone(
    base: str, expected: str, tmp_path: Path
) -> None:
    program = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    program += f"class Given{base}:\n    bf16: bool = True\n"
    program += "(args,) = HfArgumentParser(Given).parse_args_into_dataclasses()\nTrainer(args)\n"
    start = "python train.py --learning_rate 1e-5 --bf16 True --max_steps 10"
    start += " --gradient_checkpointing True\n"
    files = {"train.py": program, "run.sh": start, "requirements.txt": "transformers==4.45.2\n"}
    found = told(written(tmp_path, files), "required-field-missing")
    assert [level for level, _ in found] == [expected]


@pytest.mark.parametrize(
    ("program", "expected"), [("yaml.safe_load(open('base.yml'))\n", "note"), ("", "error")]
)
def test_a_file_that_a_python_program_loads_may_be_changed_before_it_is_read(
    program: str, expected: str, tmp_path: Path
) -> None:
    files = {
        "base.yml": "base_model: a/b\nmicro_batch_size: 1\nnum_epochs: 1\nlearning_rate: 0.0001\n"
        "sequence_len: 2048\noptimizer: adamw_torch\nbf16: true\noutput_dir: out\n",
        "make.py": program,
        "run.sh": "axolotl train base.yml\n",
        "requirements.txt": "axolotl==0.15.0\n",
    }
    found = told(written(tmp_path, files), "refused-alone")
    assert [level for level, _ in found] == [expected]


@pytest.mark.parametrize(
    ("partition", "expected"), [("", "warning"), ("#SBATCH -p h100\n", "note")]
)
def test_what_a_partition_gives_is_not_known(partition: str, expected: str, tmp_path: Path) -> None:
    start = f"#!/bin/bash\n#SBATCH -N 1\n{partition}torchrun --nproc_per_node=2 train.py\n"
    found = told(written(tmp_path, {"run.slurm": start}), "no-device-asked-for")
    assert [level for level, _ in found] == [expected]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("trl sft --config a/sft/run.yaml\n", "note"),
        ("trl sft --config b/sft/run.yaml\n", "error"),
        ("trl sft --config $MODEL/sft/run.yaml\n", "error"),
        ("trl sft --config run.yaml\n", "error"),
    ],
)
def test_of_files_with_one_name_that_is_meant_whose_folders_are_said(
    start: str, expected: str, tmp_path: Path
) -> None:
    twice = f"{SFT}max_length: 2048\n"
    files = {"a/sft/run.yaml": SFT, "b/sft/run.yaml": twice, "start.slrm": start}
    assert [level for level, _ in told(written(tmp_path, files), "E0107")] == [expected]


PARSES = "from trl import DPOConfig, DPOTrainer, TrlParser\nTrlParser(DPOConfig)\nDPOTrainer()\n"


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        ("out", "python train.py --config dpo.yaml\n", "error"),
        ("dummy", "python train.py --config dpo.yaml\n", "note"),
        ("out", "python train.py --config dpo.yaml --learning_rate $LR\n", "note"),
    ],
)
def test_a_template_waits_for_its_values(
    name: str, start: str, expected: str, tmp_path: Path
) -> None:
    text = f"model_name_or_path: a/b\ndataset_name: c\noutput_dir: {name}\nbeta: 0.1\n"
    launcher = "accelerate launch train.py --config recipes/$MODEL/dp$METHOD.yaml\n"
    files = {
        "dpo.yaml": f"{text}learning_rate: 0.0\n",
        "train.py": PARSES,
        "job.slrm": start,
        "launch.sh": launcher,
    }
    levels = [level for level, _ in told(written(tmp_path, files), "nothing-is-trained")]
    assert levels == [expected]


OF_SCRIPTS = {
    "pretrained_model_name_or_path": "a/b",
    "network_module": "networks.lora",
    "network_dim": 8,
    "network_alpha": 4,
    "output_dir": "out",
    "output_name": "x",
    "train_data_dir": "data",
    "max_train_epochs": 4,
    "save_every_n_epochs": 1,
    "xformerz": True,
}
INTERFACE = {"LoRA_type": "LoCon", "conv_dim": 4, "epoch": 3, "num_cpu_threads_per_process": 2}


@pytest.mark.parametrize(
    ("name", "more", "expected"),
    [
        ("lora.toml", {}, ["warning"]),
        ("lora.json", {}, []),
        ("lora.toml", INTERFACE, []),
    ],
)
def test_the_settings_of_an_interface_around_scripts_are_its_own(
    name: str, more: dict[str, object], expected: list[str], tmp_path: Path
) -> None:
    held = {**OF_SCRIPTS, **more}
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in held.items())
    text = "".join(lines) if name.endswith("toml") else json.dumps(held)
    start = f"accelerate launch train_network.py --config_file {name}\n"
    path = written(tmp_path, {name: text, "start.sh": start})
    assert [level for level, _ in told(path, "key-unread-by-sd-scripts")] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lr_scheduler_kwargs: {num_cycles: 2}", "warning"),
        ("lr_scheduler_kwargs: {num_cycles: 2}\nlr_scheduler_type: linear", "error"),
    ],
)
def test_an_argument_that_a_schedule_drops_ends_no_run(
    line: str, expected: str, tmp_path: Path
) -> None:
    kind = "" if "lr_scheduler_type" in line else "lr_scheduler_type: constant_with_warmup\n"
    text = f"output_dir: out\nlearning_rate: 1.0e-5\nwarmup_steps: 3\n{kind}{line}\n"
    levels = [
        e for e, _ in told(written(tmp_path, {"args.yaml": text}), "schedule-argument-unknown")
    ]
    assert levels == [expected]


@pytest.mark.parametrize(
    ("name", "expected"), [("CUDA_LAUNCH_BLCOKING", "note"), ("CUDA_VISIBLE_DEVICE", "error")]
)
def test_a_variable_that_only_shows_more_of_a_run_changes_nothing_in_it(
    name: str, expected: str, tmp_path: Path
) -> None:
    start = f"export {name}=1\ntorchrun --nproc_per_node 2 train.py --output_dir out --bf16\n"
    levels = [e for e, _ in told(written(tmp_path, {"run.sh": start}), "variable-misspelt")]
    assert levels == [expected]


@pytest.mark.parametrize(
    ("lines", "rule", "expected"),
    [
        ("use_mflow: false", "misspelt-key", "note"),
        ("use_mflow: true", "misspelt-key", "error"),
        ("report_to: wandb\nuse_wandb: true", "key-of-another-tool", "warning"),
        ("report_to: wandb", "key-of-another-tool", "error"),
    ],
)
def test_an_unread_key_changes_nothing_where_its_own_or_the_default_says_so(
    lines: str, rule: str, expected: str, tmp_path: Path
) -> None:
    text = f"base_model: a/b\ndatasets: [{{path: c, type: alpaca}}]\nmicro_batch_size: 1\n{lines}\n"
    files = {"axolotl.yaml": text, "run.sh": "axolotl train axolotl.yaml\n"}
    assert [level for level, _ in told(written(tmp_path, files), rule)] == [expected]


SHIPPED = "examples/train/optimizer/muon.sh"


@pytest.mark.parametrize(
    ("place", "start", "expected"),
    [
        (SHIPPED, "", "note"),
        (SHIPPED, f"bash {SHIPPED}\n", "warning"),
        ("examples/train/mine/muon.sh", "", "warning"),
    ],
)
def test_what_a_fork_of_ms_swift_ships_is_a_note_unless_a_script_starts_it(
    place: str, start: str, expected: str, tmp_path: Path
) -> None:
    text = "NPROC_PER_NODE=2\nswift sft --model a/b --dataset c --output_dir out\n"
    files = {place: text, "setup.py": "setup(name='ms_swift')\n", "start.sh": start or "true\n"}
    levels = [level for level, _ in told(written(tmp_path, files), "variable-not-exported")]
    assert levels == [expected]


OFFLOADED = f"{LAUNCHER}deepspeed_config: {{zero_stage: 2, offload_param_device: cpu}}\n"


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (("accelerate launch --config_file a.yaml train.py",), "warning"),
        (("accelerate launch --multi_gpu --config_file a.yaml train.py",), "note"),
        (
            (
                "accelerate launch --multi_gpu --config_file a.yaml train.py",
                "accelerate launch --config_file a.yaml train.py",
            ),
            "warning",
        ),
    ],
)
def test_an_engine_is_not_started_beside_multi_gpu(
    starts: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    scripts = {f"run_{at}.sh": f"{start}\n" for at, start in enumerate(starts)}
    path = written(tmp_path, {"a.yaml": OFFLOADED, "train.py": TRAINS, **scripts})
    assert [level for level, _ in told(path, "offload-param-ignored")] == [expected]


USES = """def arguments(root):
    path = str(root / "ds.json")
    return TrainingArguments(
        output_dir="out",
        {line}
    )
"""


@pytest.mark.parametrize(
    ("line", "expected"), [("deepspeed=path,", "warning"), ("# deepspeed=path,", "note")]
)
def test_a_name_that_is_only_held_starts_nothing(line: str, expected: str, tmp_path: Path) -> None:
    text = f"from transformers import TrainingArguments\n{USES.format(line=line)}"
    offload = '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
    path = written(tmp_path, {"train.py": text, "ds.json": offload})
    assert [level for level, _ in told(path, "offload-param-ignored")] == [expected]


@pytest.mark.parametrize(
    ("text", "expected"), [("run(['srun', 'torchrun'])", []), ("run(['torchrun'])", ["error"])]
)
def test_a_program_may_start_the_other_nodes_itself(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    job = "#!/bin/bash\n#SBATCH --nodes=2\npython bench.py --output_dir out\n"
    path = written(tmp_path, {"job.sh": job, "bench.py": f"{TRAINS}{text}\n"})
    assert [level for level, _ in told(path, "nodes-without-srun")] == expected


def test_windows_line_endings_are_one_fault(tmp_path: Path) -> None:
    start = (
        'ARGS="\n    --nproc_per_node 2 \\\n    --node_rank 0\n"\ntorchrun $ARGS finetune.py \\\n'
    )
    script = f"{start}  --output_dir out --bf16 true\n".replace("\n", "\r\n")
    found = tunec.lint(written(tmp_path, {"run.sh": script})).diagnostics
    assert [each.id for each in found if each.severity == "error"] == ["command-cut-short"]
    assert "launcher-flags-behind-script" not in [each.id for each in found]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ("--deepspeed ds.json --output_dir out --bf16 True", []),
        ("--deepspeed --deepspeed_config ds.json", ["error"]),
    ],
)
def test_values_that_nothing_reads_have_no_type(
    starts: str, expected: list[str], tmp_path: Path
) -> None:
    text = '{"train_batch_size": 8, "activation_checkpointing": {"number_checkpoints": "none"}}'
    trains = "HfArgumentParser(TrainingArguments)" if not expected else "deepspeed.initialize(1)"
    files = {"run.sh": f"deepspeed train.py {starts}\n", "train.py": trains, "ds.json": text}
    path = written(tmp_path, files)
    assert [level for level, _ in told(path, "value-of-another-type")] == expected
