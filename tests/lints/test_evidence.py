"""What a run does not show is not told: each case has a twin in which the same rule speaks."""

from pathlib import Path

import pytest
from lint_asking import lint

TRAINER = "output_dir: out\nlearning_rate: 1.0e-6\nper_device_train_batch_size: 1\n"
SFT = "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nmax_length: 1024\n"
LLAMAFACTORY = (
    "model_name_or_path: EleutherAI/pythia-160m\ndataset: alpaca_en_demo\ntemplate: default\n"
    "output_dir: out\nstage: sft\ndo_train: true\nfinetuning_type: full\npure_bf16: true\n"
    "learning_rate: 0.000001\n"
)
SCRIPT = "--output_dir out --bf16 true --learning_rate 1e-5 --model_name_or_path a/b\n"
NODES = "torchrun --nnodes 2 --nproc_per_node 8 --master_port 29500 --master_addr"

LLAVA = "--vision_tower openai/clip-vit-large-patch14 --version v1 --image_aspect_ratio resize"
PREFERRED = (
    "model_name_or_path: a/b\ntorch_dtype: bfloat16\ndataset_mixer: {a: 1.0}\noutput_dir: out\n"
    "learning_rate: 2.0e-4\nmax_length: 1024\nmax_prompt_length: 512\nbf16: true\n"
)
TUNED = (
    '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": "auto",'
    ' "autotuning": {"enabled": true}, "zero_optimization": {"stage": [0, 1, 2]}}'
)
INT8 = (
    "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nmax_length: 1024\n"
    "load_in_8bit: true\nuse_peft: true\nfp16: true\nlearning_rate: 2.0e-4\n"
)

Case = tuple[str, dict[str, str], str]
"""The rule, files, and further arguments."""

SPEAKS: dict[str, Case] = {
    "bf16 without copies": ("bf16-updates-lost", {"run.yaml": LLAMAFACTORY}, ""),
    "a file that nobody makes": (
        "missing-file",
        {"run.yaml": TRAINER + "deepspeed: configs/ds.json\n"},
        "",
    ),
    "a file that no line makes": (
        "missing-file",
        {"run.sh": f"python prepare.py\ndeepspeed train.py --deepspeed ds.json {SCRIPT}"},
        "",
    ),
    "every node at itself": (
        "nodes-without-meeting-point",
        {"run.sh": f"{NODES} 127.0.0.1 train.py {SCRIPT}"},
        "",
    ),
    "an interval beyond the end": (
        "evaluation-after-the-end",
        {"run.yaml": TRAINER + "eval_strategy: steps\neval_steps: 2000\nmax_steps: 1000\n"},
        "",
    ),
    "a number as text for the trainer's own parser": (
        "number-as-text",
        {"run.yaml": TRAINER.replace("1.0e-6", "1e-6")},
        "",
    ),
    "a number as text before TRL 0.9": (
        "number-as-text",
        {"run.yaml": SFT + "learning_rate: 2e-5\n"},
        "--software trl=0.8.6",
    ),
    "a whole number that int() refuses": (
        "number-as-text",
        {"run.yaml": SFT + "max_steps: 1e3\n"},
        "--software trl=1.16",
    ),
    "padding-free samples in TRL 0.27": (
        "packing-without-varlen",
        {"run.yaml": SFT + "packing: true\nattn_implementation: sdpa\n"},
        "--software trl=0.27.2",
    ),
    "a word that LLaVA does not have": (
        "script-word-unknown",
        {"run.sh": f"torchrun llava/train/train_mem.py {LLAVA} {SCRIPT}"},
        "",
    ),
    "a rate of supervised training for DPO": (
        "preference-rate-as-for-sft",
        {"dpo.yaml": PREFERRED},
        "",
    ),
    "a list where DeepSpeed takes a number": (
        "value-of-another-type",
        {"ds_config.json": TUNED.replace("true", "false")},
        "--from deepspeed",
    ),
    "auto that no trainer fills in": (
        "auto-in-plain-deepspeed",
        {"ds_config.json": TUNED.replace("true", "false")},
        "--from deepspeed",
    ),
    "int8 by an old bitsandbytes on a device without it": (
        "int8-without-hardware",
        {"run.yaml": INT8, "requirements.txt": "bitsandbytes==0.43.1\n"},
        "--hardware v100-sxm2-32g-x1",
    ),
    "a word where a number belongs": (
        "value-of-another-type",
        {"run.yaml": TRAINER + "max_steps: many\n"},
        "",
    ),
}
SILENT: dict[str, Case] = {
    "bf16 under ZeRO, whose file is elsewhere": (
        "bf16-updates-lost",
        {"run.yaml": LLAMAFACTORY + "deepspeed: elsewhere/ds.json\n"},
        "",
    ),
    "bf16 where nothing is trained": (
        "bf16-updates-lost",
        {"run.yaml": LLAMAFACTORY.replace("do_train: true", "do_train: false")},
        "",
    ),
    "a file below the outputs": (
        "missing-file",
        {"run.yaml": TRAINER + "deepspeed: ./out/ds.json\n"},
        "",
    ),
    "a file of a checkpoint": (
        "missing-file",
        {"run.yaml": TRAINER + "deepspeed: last/checkpoint-100/ds.json\n"},
        "",
    ),
    "a file that a line before makes": (
        "missing-file",
        {"run.sh": f"python x.py -o ds.json\ndeepspeed train.py --deepspeed ds.json {SCRIPT}"},
        "",
    ),
    "a file whose name is to be filled in": (
        "missing-file",
        {"run.yaml": TRAINER + "deepspeed: <path_to_config>.json\n"},
        "",
    ),
    "the script of the first node": (
        "nodes-without-meeting-point",
        {"run.sh": f"{NODES} 127.0.0.1 --node_rank 0 train.py {SCRIPT}"},
        "",
    ),
    "an interval that means never": (
        "evaluation-after-the-end",
        {"run.yaml": TRAINER + "eval_strategy: steps\neval_steps: 999999\nmax_steps: 1000\n"},
        "",
    ),
    "a number that TRL's parser makes of text": (
        "number-as-text",
        {"run.yaml": SFT + 'learning_rate: 2e-5\nweight_decay: "0.1"\nmax_steps: "4"\n'},
        "--software trl=1.16",
    ),
    "packing where TRL relies on the masks": (
        "packing-without-varlen",
        {"run.yaml": SFT + "packing: true\nattn_implementation: sdpa\n"},
        "--software trl=1.16",
    ),
    "packing that joins on purpose": (
        "packing-without-varlen",
        {"run.yaml": SFT + "packing: true\npacking_strategy: wrapped\nattn_implementation: sdpa\n"},
        "--software trl=0.27.2",
    ),
    "packing before samples were kept apart": (
        "packing-without-varlen",
        {"run.yaml": SFT + "packing: true\nattn_implementation: sdpa\n"},
        "--software trl=0.17",
    ),
    "a word that VILA has": (
        "script-word-unknown",
        {"run.sh": f"torchrun llava/train/train_mem.py {LLAVA} --data_mixture x {SCRIPT}"},
        "",
    ),
    "a stray key of DPO in a file for SFT": (
        "preference-rate-as-for-sft",
        {"config_sft.yaml": PREFERRED},
        "",
    ),
    "a list that DeepSpeed's autotuner tries": (
        "value-of-another-type",
        {"ds_config.json": TUNED},
        "--from deepspeed",
    ),
    "auto that DeepSpeed's autotuner fills in": (
        "auto-in-plain-deepspeed",
        {"ds_config.json": TUNED},
        "--from deepspeed",
    ),
    "int8 on a device that has it": (
        "int8-without-hardware",
        {"run.yaml": INT8, "requirements.txt": "bitsandbytes==0.43.1\n"},
        "--hardware a100-80g-x1",
    ),
    "values of a template": (
        "value-of-another-type",
        {
            "run.yaml": TRAINER + 'max_steps: {{ steps }}\nnum_train_epochs: "{{ epochs }}"\n'
            "seed: <SEED>\nsave_total_limit: YOUR_LIMIT\n"
        },
        "",
    ),
}


def told(case: Case, folder: Path) -> list[str]:
    rule, files, arguments = case
    (folder / ".git").mkdir()
    named = [name for name in files if name != "requirements.txt"]
    answer = lint(folder, files, [*named, *arguments.split()])
    assert not any(each["id"].startswith("E") for each in answer.findings), answer.out
    return [each["severity"] for each in answer.findings if each["id"] == rule]


@pytest.mark.parametrize("name", SPEAKS)
def test_what_is_shown_is_told(name: str, tmp_path: Path) -> None:
    assert set(told(SPEAKS[name], tmp_path)) & {"error", "warning"}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_shown_is_not_told(name: str, tmp_path: Path) -> None:
    assert told(SILENT[name], tmp_path) == []
    assert SILENT[name][0] in {rule for rule, _, _ in SPEAKS.values()}


def test_where_no_release_of_trl_is_known_packing_is_a_possibility(tmp_path: Path) -> None:
    files = {"run.yaml": SFT + "packing: true\nattn_implementation: sdpa\n"}
    assert told(("packing-without-varlen", files, ""), tmp_path) == ["note"]


def test_the_help_for_a_number_is_a_number(tmp_path: Path) -> None:
    import yaml

    files = {"run.yaml": TRAINER.replace("1.0e-6", "2e-5")}
    (found,) = (e for e in lint(tmp_path, files, ["run.yaml"]).findings if "text" in e["message"])
    assert yaml.safe_load(found["help"].removeprefix("write ")) == 2e-5


def test_what_is_certain_to_fail_is_an_error(tmp_path: Path) -> None:
    case = SPEAKS["int8 by an old bitsandbytes on a device without it"]
    rule, files, arguments = case
    assert told(case, tmp_path) == ["error"]
    (tmp_path / "elsewhere").mkdir()
    assert told((rule, {"run.yaml": files["run.yaml"]}, arguments), tmp_path / "elsewhere") == [
        "warning"
    ]
