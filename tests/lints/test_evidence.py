"""What a run does not show is not told: each case has a twin in which the same rule speaks."""

from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.lints.index import rule

TRAINER = "output_dir: out\nlearning_rate: 1.0e-6\nper_device_train_batch_size: 1\n"
LLAMA = "meta-llama/Llama-3.1-8B"
SFT = "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nmax_length: 1024\n"
LLAMAFACTORY = (
    "model_name_or_path: EleutherAI/pythia-160m\ndataset: alpaca_en_demo\ntemplate: default\n"
    "output_dir: out\nstage: sft\ndo_train: true\nfinetuning_type: full\npure_bf16: true\n"
    "learning_rate: 0.000001\n"
)
SCRIPT = "--output_dir out --bf16 true --learning_rate 1e-5 --model_name_or_path a/b\n"
SLOW = SCRIPT.strip().replace("1e-5", "1e-6")
FAST = SCRIPT.strip().replace("1e-5", "3e-4").replace("a/b", LLAMA)
MANY = (
    "--deepspeed ds.json --bf16 True --lr_scheduler_type cosine --gradient_accumulation_steps 1"
    " --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --learning_rate 1e-5"
    " --max_grad_norm 0.5 --logging_steps 5 --save_steps 100 --output_dir out"
)
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

STAGE = "model_name_or_path: a/b\ndataset: c\ntemplate: llama3\noutput_dir: out\ndo_train: true\n"
EVALUATED = "model_name_or_path: a/b\ntemplate: fewshot\nfinetuning_type: lora\ntask: mmlu_test\n"
VLLM = (
    "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nuse_vllm: true\n"
    "max_completion_length: 2048\nvllm_max_model_len: 2048\nnum_generations: 4\n"
)
OFFLOADED = (
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization":'
    ' {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
)
BLOCK = "distributed_type: DEEPSPEED\ncompute_environment: LOCAL_MACHINE\ndeepspeed_config:\n"
FSDP = "distributed_type: FSDP\nmixed_precision: fp16\nnum_processes: 2\nfsdp_config: {}\n"
FSDP_2 = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 2\n"
    "fsdp_config: {fsdp_version: 2}\n"
)
ARGUMENTS = TRAINER.replace("output_dir: out\n", "num_train_epochs: 2\nbf16: true\n")
SMALL = "HuggingFaceTB/SmolLM2-1.7B"
STARCODER = "--model_path a/b --dataset_name c --seq_length 1024 --batch_size 1 --no_fp16"
RECORD = """wandb_version: 1
_wandb: {value: {framework: huggingface}}
output_dir: {value: out}
learning_rate: {value: 1.0e-5}
deepspeed: {value: ds.json}
fsdp: {value: []}
hub_token: {value: <HUB_TOKEN>}
"""
QLORA = (
    "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nmax_length: 1024\nuse_peft: true\n"
    "load_in_4bit: true\nbnb_4bit_quant_storage: bfloat16\nlearning_rate: 2.0e-4\n"
)
DIFFUSION = (
    '{"model_family": "flux", "model_type": "full", "data_backend_config": "d.json",'
    ' "optimizer": "optimi-adamw", "mixed_precision": "fp16", "output_dir": "out",'
    ' "max_train_steps": 10, "num_train_epochs": 0, "learning_rate": 0.0001}'
)
CONTIGUOUS = (
    '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "activation_checkpointing":'
    ' {"contiguous_memory_optimization": true, "number_checkpoints": 24}}'
)
JOB = "#!/bin/bash\ncd work\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\ntorchrun train.py --bf16\n"

Case = tuple[str, dict[str, str], str]
"""The rule, files, and further arguments."""


def one(rule: str, text: str, arguments: str = "", name: str = "run.yaml") -> Case:
    return rule, {name: text}, arguments


def several(rule: str, files: dict[str, str], arguments: str = "") -> Case:
    return rule, files, arguments


SPEAKS: dict[str, Case] = {
    "what accelerate has no value for": several(
        "auto-never-filled",
        {
            "run.yaml": TRAINER + "deepspeed: ds.json\n",
            "ds.json": OFFLOADED.replace('"stage": 2,', '"stage": 3, "sub_group_size": "auto",'),
        },
    ),
    "bf16 without copies": one("bf16-updates-lost", LLAMAFACTORY),
    "a file that nobody makes": one("missing-file", TRAINER + "deepspeed: configs/ds.json\n"),
    "a file that no line makes": one(
        "missing-file",
        f"python prepare.py\ndeepspeed train.py --deepspeed ds.json {SCRIPT}",
        name="run.sh",
    ),
    "every node at itself": one(
        "nodes-without-meeting-point", f"{NODES} 127.0.0.1 train.py {SCRIPT}", name="run.sh"
    ),
    "an interval beyond the end": one(
        "evaluation-after-the-end",
        TRAINER + "eval_strategy: steps\neval_steps: 2000\nmax_steps: 1000\n",
    ),
    "a number as text for the trainer's own parser": one(
        "number-as-text", TRAINER.replace("1.0e-6", "1e-6")
    ),
    "a number as text before TRL 0.9": one(
        "number-as-text", SFT + "learning_rate: 2e-5\n", "--software trl=0.8.6"
    ),
    "a whole number that int() refuses": one(
        "number-as-text", SFT + "max_steps: 1e3\n", "--software trl=1.16"
    ),
    "padding-free samples in TRL 0.27": one(
        "packing-without-varlen",
        SFT + "packing: true\nattn_implementation: sdpa\n",
        "--software trl=0.27.2",
    ),
    "a word that LLaVA does not have": one(
        "script-word-unknown", f"torchrun llava/train/train_mem.py {LLAVA} {SCRIPT}", name="run.sh"
    ),
    "a rate of supervised training for DPO": one(
        "preference-rate-as-for-sft", PREFERRED, name="dpo.yaml"
    ),
    "a list where DeepSpeed takes a number": one(
        "value-of-another-type",
        TUNED.replace("true", "false"),
        "--from deepspeed",
        name="ds_config.json",
    ),
    "auto that no trainer fills in": one(
        "auto-in-plain-deepspeed",
        TUNED.replace("true", "false"),
        "--from deepspeed",
        name="ds_config.json",
    ),
    "int8 by an old bitsandbytes on a device without it": several(
        "int8-without-hardware",
        {"run.yaml": INT8, "requirements.txt": "bitsandbytes==0.43.1\n"},
        "--hardware v100-sxm2-32g-x1",
    ),
    "bf16 under torch alone": one(
        "bf16-updates-lost", f"torchrun train.py {SLOW} --torch_dtype bfloat16\n", name="run.sh"
    ),
    "an interval whose strategy is left out": one(
        "interval-without-strategy", TRAINER + "eval_steps: 100\ndo_eval: true\n"
    ),
    "options of a recomputation that is left out": one(
        "checkpointing-options-ignored",
        TRAINER + "gradient_checkpointing_kwargs: {use_reentrant: false}\n",
    ),
    "vLLM's keys, and vLLM left out": one(
        "vllm-keys-without-vllm", VLLM.replace("use_vllm: true\n", ""), name="grpo.yaml"
    ),
    "stage 3's partition below stage 3": one(
        "stage-3-keys-below-stage-3",
        OFFLOADED.replace('"stage": 2,', '"stage": 2, "zero_hpz_partition_size": 8,'),
        name="ds.json",
    ),
    "a stage that no source has": several(
        "word-not-taken",
        {"run.yaml": STAGE + "stage: modpo\n", "src/tuner.py": 'if stage == "dpo":\n    pass\n'},
    ),
    "a key that no class has": several(
        "key-of-no-release",
        {"run.yaml": STAGE + "stage: sft\nmodal_inputs: true\n", "src/args.py": "modal = 1\n"},
    ),
    "an option of a stage that is known": one(
        "option-of-another-choice", STAGE + "stage: sft\npref_beta: 0.1\n"
    ),
    "a truth value where a folder is expected": one(
        "resume-from-a-word",
        f"torchrun train.py {SLOW} --resume_from_checkpoint False\n",
        name="run.sh",
    ),
    "a context that a release has a key for": several(
        "trl-pair-of-some-releases", {"grpo.yaml": VLLM, "requirements.txt": "trl==0.16.1\n"}
    ),
    "an optimizer that DeepSpeed takes the place of": several(
        "optimizer-exchanged-on-offload",
        {"run.yaml": TRAINER + "deepspeed: ds.json\noptim: adamw_8bit\n", "ds.json": OFFLOADED},
    ),
    "a rate of adapters for a whole model": one(
        "learning-rate-of-the-other-method", f"torchrun train.py {FAST}\n", name="run.sh"
    ),
    "packed weights of another dtype than the launcher's": several(
        "quantised-base-under-fsdp", {"run.yaml": QLORA, "accelerate.yaml": FSDP}
    ),
    "fp16 of SimpleTuner on one device": one("fp16-in-simpletuner", DIFFUSION, name="config.json"),
    "KTO of TRL with one sample": one(
        "kto-batch-of-one",
        SFT.replace("max_length", "desirable_weight: 1.0\nmax_length") + "beta: 0.1\n"
        "per_device_train_batch_size: 1\n",
        name="kto.yaml",
    ),
    "a number as text that accelerate reads": one(
        "number-as-text",
        BLOCK + "  zero_stage: 2\n  gradient_clipping: 1e0\n",
        name="accelerate.yaml",
    ),
    "activation checkpoints that a script configures": several(
        "contiguous-without-partition",
        {"ds.json": CONTIGUOUS, "train.py": "deepspeed.checkpointing.configure(None)\n"},
        "--from deepspeed",
    ),
    "a variable that no caller has": one(
        "variable-not-exported",
        f"HF_HUB_ENABLE_HF_TRANSFER=1\ntorchrun train.py {SCRIPT}",
        name="run.sh",
    ),
    "the best model, and nothing that says which": one(
        "best-save-unguided",
        f"torchrun train.py {SLOW} --save_strategy best --eval_strategy epoch\n",
        name="run.sh",
    ),
    "a flag that a maker's script does not have": one(
        "script-flag-unknown",
        f"torchrun finetune/finetune.py {STARCODER} --lora_q 8\n",
        name="run.sh",
    ),
    "LoRA's keys and no LoRA": one(
        "lora-keys-without-adapter", SFT + "lora_r: 8\n", name="sft.yaml"
    ),
    "a key that no recipe has": one(
        "key-of-no-class", SFT + "learning_rate: 2.0e-5\ndata_blend: {a: 1.0}\n", name="sft.yaml"
    ),
    "FSDP 2 with an old torch": several(
        "fsdp-2-before-torch-2-6", {"accelerate.yaml": FSDP_2, "requirements.txt": "torch==2.5.1\n"}
    ),
    "a field that the release needs": several(
        "required-field-missing",
        {"run.yaml": ARGUMENTS, "requirements.txt": "transformers==4.45.2\n"},
    ),
    "a name on the Hub, and no upload": one(
        "hub-keys-without-push", TRAINER + "hub_model_id: a/b\n"
    ),
    "a word where a number belongs": one("value-of-another-type", TRAINER + "max_steps: many\n"),
}
SPEAKS |= {
    "a flag that is none": (
        "unknown-key",
        {"run.sh": f"torchrun train.py {MANY} --lr_warmup_ratio 0.03\n"},
        "",
    ),
    "a word before the script": (
        "word-taken-for-script",
        {"run.sh": f"accelerate launch --num_processes 2 4 train.py {SLOW}\n"},
        "",
    ),
    "an evaluation of another pace": (
        "best-model-cadence",
        {
            "run.yaml": TRAINER + "save_strategy: epoch\neval_strategy: steps\n"
            "load_best_model_at_end: true\n"
        },
        "",
    ),
    "a launcher's dtype beside another": (
        "deepspeed-and-trainer-differ",
        {
            "run.yaml": TRAINER + "fp16: true\n",
            "accelerate.yaml": BLOCK + "  zero_stage: 2\nmixed_precision: bf16\n",
        },
        "",
    ),
    "a config that a release of TRL has not": (
        "field-of-another-release",
        {
            "train.py": "from trl import SFTConfig\n"
            "arguments = SFTConfig(output_dir='out', max_seq_length=1024)\n",
            "requirements.txt": "trl==0.25.0\n",
        },
        "train.py",
    ),
    "a bound of GRPO on the wrong side": (
        "clip-bounds-crossed",
        {"grpo.yaml": VLLM + "learning_rate: 1.0e-6\ndelta: 0.8\n"},
        "",
    ),
}

SILENT: dict[str, Case] = {
    "bf16 under ZeRO, whose file is elsewhere": one(
        "bf16-updates-lost", LLAMAFACTORY + "deepspeed: elsewhere/ds.json\n"
    ),
    "bf16 where nothing is trained": one(
        "bf16-updates-lost", LLAMAFACTORY.replace("do_train: true", "do_train: false")
    ),
    "a file below the outputs": one("missing-file", TRAINER + "deepspeed: ./out/ds.json\n"),
    "a file of a checkpoint": one(
        "missing-file", TRAINER + "deepspeed: last/checkpoint-100/ds.json\n"
    ),
    "a file that a line before makes": one(
        "missing-file",
        f"python x.py -o ds.json\ndeepspeed train.py --deepspeed ds.json {SCRIPT}",
        name="run.sh",
    ),
    "a file whose name is to be filled in": one(
        "missing-file", TRAINER + "deepspeed: <path_to_config>.json\n"
    ),
    "the script of the first node": one(
        "nodes-without-meeting-point",
        f"{NODES} 127.0.0.1 --node_rank 0 train.py {SCRIPT}",
        name="run.sh",
    ),
    "an interval that means never": one(
        "evaluation-after-the-end",
        TRAINER + "eval_strategy: steps\neval_steps: 999999\nmax_steps: 1000\n",
    ),
    "a number that TRL's parser makes of text": one(
        "number-as-text",
        SFT + 'learning_rate: 2e-5\nweight_decay: "0.1"\nmax_steps: "4"\n',
        "--software trl=1.16",
    ),
    "packing where TRL relies on the masks": one(
        "packing-without-varlen",
        SFT + "packing: true\nattn_implementation: sdpa\n",
        "--software trl=1.16",
    ),
    "packing that joins on purpose": one(
        "packing-without-varlen",
        SFT + "packing: true\npacking_strategy: wrapped\nattn_implementation: sdpa\n",
        "--software trl=0.27.2",
    ),
    "packing before samples were kept apart": one(
        "packing-without-varlen",
        SFT + "packing: true\nattn_implementation: sdpa\n",
        "--software trl=0.17",
    ),
    "a word that VILA has": one(
        "script-word-unknown",
        f"torchrun llava/train/train_mem.py {LLAVA} --data_mixture x {SCRIPT}",
        name="run.sh",
    ),
    "a stray key of DPO in a file for SFT": one(
        "preference-rate-as-for-sft", PREFERRED, name="config_sft.yaml"
    ),
    "a list that DeepSpeed's autotuner tries": one(
        "value-of-another-type", TUNED, "--from deepspeed", name="ds_config.json"
    ),
    "auto that DeepSpeed's autotuner fills in": one(
        "auto-in-plain-deepspeed", TUNED, "--from deepspeed", name="ds_config.json"
    ),
    "int8 on a device that has it": several(
        "int8-without-hardware",
        {"run.yaml": INT8, "requirements.txt": "bitsandbytes==0.43.1\n"},
        "--hardware a100-80g-x1",
    ),
    "a recipe whose engine accelerate's file says": one(
        "bf16-updates-lost",
        SFT + "torch_dtype: bfloat16\nbf16: true\nlearning_rate: 1.0e-6\n",
        name="sft.yaml",
    ),
    "a script whose engine a file elsewhere says": one(
        "bf16-updates-lost",
        "accelerate launch --config_file /elsewhere/zero3.yaml train.py"
        f" {SLOW} --torch_dtype bfloat16\n",
        name="run.sh",
    ),
    "a stage that the repository's own program has": several(
        "word-not-taken",
        {"run.yaml": STAGE + "stage: modpo\n", "src/tuner.py": 'if stage == "modpo":\n    pass\n'},
    ),
    "a key that the repository's own program has": several(
        "key-of-no-release",
        {
            "run.yaml": STAGE + "stage: sft\nmodal_inputs: true\n",
            "src/args.py": "class Arguments:\n    modal_inputs: bool = False\n",
        },
    ),
    "an option of a stage that a fork has": one(
        "option-of-another-choice", STAGE + "stage: modpo\npref_beta: 0.1\n"
    ),
    "the file of an evaluation": one(
        "key-of-no-release", EVALUATED + "lang: en\nn_shot: 5\nbatch_size: 4\n", name="eval.yaml"
    ),
    "a truth value that the script's own class makes": several(
        "resume-from-a-word",
        {
            "run.sh": f"torchrun train.py {SLOW} --resume_from_checkpoint False\n",
            "params.py": "class Parameters:\n    resume_from_checkpoint: bool = False\n",
        },
    ),
    "a context that the release has no key for": several(
        "trl-pair-of-some-releases", {"grpo.yaml": VLLM, "requirements.txt": "trl==0.14.0\n"}
    ),
    "a context that the release which a script installs has no key for": several(
        "trl-pair-of-some-releases",
        {"grpo.yaml": VLLM, "setup.sh": "# pip install trl==0.16.1\npip install -U trl==0.14.0\n"},
    ),
    "an optimizer that is a script's own": several(
        "optimizer-exchanged-on-offload",
        {"run.yaml": TRAINER + "deepspeed: ds.json\noptim: adamw_4bit\n", "ds.json": OFFLOADED},
    ),
    "a rate of adapters beside a script's own switch": one(
        "learning-rate-of-the-other-method",
        f"torchrun train.py {FAST} --lora_enable True\n",
        name="run.sh",
    ),
    "a launcher's dtype that the trainer replaces": several(
        "quantised-base-under-fsdp", {"run.yaml": QLORA + "bf16: true\n", "accelerate.yaml": FSDP}
    ),
    "fp16 of SimpleTuner under DeepSpeed": several(
        "fp16-in-simpletuner",
        {"config.json": DIFFUSION, "accelerate.yaml": BLOCK + "  zero_stage: 3\n"},
    ),
    "KTO of LLaMA-Factory, which pairs samples first": one(
        "kto-batch-of-one", STAGE + "stage: kto\nper_device_train_batch_size: 1\n"
    ),
    "a number as text below a block that nothing reads": one(
        "number-as-text",
        BLOCK + "  zero_stage: 2\n  zero_optimization: {bucket: 5e7}\n",
        name="accelerate.yaml",
    ),
    "activation checkpoints that no script configures": several(
        "contiguous-without-partition",
        {"ds.json": CONTIGUOUS, "train.py": "deepspeed.initialize(model=None)\n"},
        "--from deepspeed",
    ),
    "a variable of the job that starts the script": one(
        "variable-not-exported",
        f"ACCELERATE_USE_DEEPSPEED=false\ntorchrun train.py {SCRIPT}",
        name="run.sh",
    ),
    "a preference method of a small model": one(
        "preference-rate-as-for-sft", PREFERRED.replace("a/b", "maker/model-160M"), name="dpo.yaml"
    ),
    "rewards, of which no pair is made": one(
        "preference-rate-as-for-sft", VLLM + "learning_rate: 2.0e-5\n", name="grpo.yaml"
    ),
    "an interval beside a recipe that says the strategy": one(
        "interval-without-strategy",
        f"torchrun train.py --config recipe.yaml {SLOW} --eval_steps 100\n",
        name="run.sh",
    ),
    "the best model beside a recipe that says which": one(
        "best-save-unguided",
        f"torchrun train.py --config recipe.yaml {SLOW} --save_strategy best\n",
        name="run.sh",
    ),
    "flags of another script at the place of a maker's": one(
        "script-flag-unknown",
        f"torchrun finetune/finetune.py {SLOW} --do_train --block_size 8 --train_file a.txt\n",
        name="run.sh",
    ),
    "a field that a script's own loader gives": several(
        "required-field-missing",
        {
            "run.yaml": ARGUMENTS,
            "loader.py": "args = TrainingArguments(**{**config, 'output_dir': out})\n",
            "requirements.txt": "transformers==4.45.2\n",
        },
    ),
    "LoRA's keys of a script's own class": several(
        "lora-keys-without-adapter",
        {"sft.yaml": SFT + "lora_r: 8\n", "train.py": "class Arguments:\n    lora_r: int = 8\n"},
    ),
    "a key of the handbook's today": one(
        "key-of-no-class",
        SFT + "learning_rate: 2.0e-5\ndataset_mixture: {a: 1.0}\n",
        name="sft.yaml",
    ),
    "FSDP 2 with a torch that may be new": several(
        "fsdp-2-before-torch-2-6",
        {"accelerate.yaml": FSDP_2, "requirements.txt": "torch>=2.4.0,<2.7.0\n"},
    ),
    "a rate of the makers of a small model": one(
        "learning-rate-of-the-other-method",
        f"torchrun train.py {FAST.replace(LLAMA, SMALL)}\n",
        name="run.sh",
    ),
    "a number of a recipe that TRL's parser reads": several(
        "number-as-text",
        {
            "sft.yaml": SFT + "learning_rate: 2e-5\ndataset_mixer: {a: 1.0}\n",
            "train.py": "parser = TrlParser((Arguments, SFTConfig))\n",
            "requirements.txt": "trl==0.9.6\n",
        },
    ),
    "a flag that argparse takes for the one that begins so": one(
        "unknown-key", f"torchrun train.py {MANY} --max_step 50\n", name="run.sh"
    ),
    "a flag of the repository's own parser": several(
        "unknown-key",
        {
            "run.sh": f"torchrun train.py {MANY} --lr_warmup_ratio 0.03\n",
            "train.py": "parser.add_argument('--lr_warmup_ratio')\n",
        },
    ),
    "an empty word for what no script sets": one(
        "resume-from-a-word",
        'torchrun train.py --resume_from_checkpoint ${checkpoint:-""} ' + SLOW + "\n",
        name="run.sh",
    ),
    "the end of a launcher's flags": one(
        "word-taken-for-script",
        f"accelerate launch --num_processes 2 -- train.py {SLOW}\n",
        name="run.sh",
    ),
    "an evaluation that a class of one's own turns on": several(
        "interval-without-strategy",
        {
            "run.sh": f"torchrun train.py {SLOW} --eval_steps 100\n",
            "train.py": "class Arguments(TrainingArguments):\n    eval_strategy: str = 'steps'\n",
        },
    ),
    "an older word of Axolotl's for when to evaluate": one(
        "best-model-cadence",
        "base_model: a/b\nmicro_batch_size: 1\nnum_epochs: 1\noutput_dir: out\n"
        "datasets: [{path: a, type: alpaca}]\nsave_strategy: steps\neval_steps: 100\n"
        "save_steps: 200\nevaluation_strategy: steps\nload_best_model_at_end: true\n",
    ),
    "a launcher's dtype beside a class that settles its own": several(
        "deepspeed-and-trainer-differ",
        {
            "sft.yaml": SFT + "learning_rate: 2.0e-5\n",
            "accelerate.yaml": BLOCK + "  zero_stage: 2\nmixed_precision: bf16\n",
            "requirements.txt": "trl==0.25.0\n",
        },
    ),
    "a config that unsloth puts in place of TRL's": several(
        "field-of-another-release",
        {
            "train.py": "from unsloth import FastModel\nfrom trl import SFTConfig\n"
            "arguments = SFTConfig(output_dir='out', max_seq_length=1024)\n",
            "requirements.txt": "trl==0.25.0\n",
        },
        "train.py",
    ),
    "an option of a trainer of one's own": several(
        "clip-bounds-crossed",
        {
            "grpo.yaml": VLLM + "learning_rate: 1.0e-6\ndelta: 0.8\n",
            "config.py": "class Config(GRPOConfig):\n    delta: float = 0.5\n",
        },
    ),
    "values of a template": one(
        "value-of-another-type",
        TRAINER + 'max_steps: {{ steps }}\nnum_train_epochs: "{{ epochs }}"\n'
        "seed: <SEED>\nsave_total_limit: YOUR_LIMIT\n",
    ),
}


def told(case: Case, folder: Path) -> list[str]:
    rule, files, arguments = case
    (folder / ".git").mkdir()
    named = [name for name in files if not name.endswith((".txt", ".py")) and name != "setup.sh"]
    answer = lint(folder, files, [*named, *arguments.split()])
    assert not any(each["id"].startswith("E") for each in answer.findings), answer.out
    return [each["severity"] for each in answer.findings if each["id"] == rule]


@pytest.mark.parametrize("name", SPEAKS)
def test_what_is_shown_is_told(name: str, tmp_path: Path) -> None:
    case = SPEAKS[name]
    wanted = {"note"} if rule(case[0]).severity == "note" else {"error", "warning"}
    assert set(told(case, tmp_path)) & wanted


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_shown_is_not_told(name: str, tmp_path: Path) -> None:
    assert told(SILENT[name], tmp_path) == []
    assert SILENT[name][0] in {rule for rule, _, _ in SPEAKS.values()}


OFF: dict[str, Case] = {
    "evaluation": one(
        "interval-without-strategy", TRAINER + 'eval_strategy: "no"\neval_steps: 100\n'
    ),
    "recomputation": one(
        "checkpointing-options-ignored",
        TRAINER + "gradient_checkpointing: false\n"
        "gradient_checkpointing_kwargs: {use_reentrant: false}\n",
    ),
    "vLLM": one(
        "vllm-keys-without-vllm", VLLM.replace("vllm: true", "vllm: false"), name="grpo.yaml"
    ),
    "stage 3": one(
        "stage-3-keys-below-stage-3",
        OFFLOADED.replace('"stage": 2,', '"stage": 2, "sub_group_size": 1e9,'),
        name="ds.json",
    ),
    "an upload": one("hub-keys-without-push", TRAINER + "hub_model_id: a/b\npush_to_hub: false\n"),
    "all evaluation": one(
        "interval-without-strategy", TRAINER + "do_eval: false\neval_steps: 100\n"
    ),
    "accelerate's checks": one(
        "debugging-left-on",
        "debug: true\ndistributed_type: MULTI_GPU\nnum_processes: 2\n",
        name="accelerate.yaml",
    ),
}


@pytest.mark.parametrize("name", OFF)
def test_what_waits_for_a_switch_that_is_off_on_purpose_is_a_note(
    name: str, tmp_path: Path
) -> None:
    assert told(OFF[name], tmp_path) == ["note"]


def test_a_record_of_a_run_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    assert lint(tmp_path, {"wandb/config.yaml": RECORD}, ["."]).names == []


def test_what_several_runs_find_at_one_place_is_told_once(tmp_path: Path) -> None:
    start = f"deepspeed --num_gpus 1 train.py --deepspeed ds.json {SLOW}"
    files = {"one.sh": start, "two.sh": start, "ds.json": OFFLOADED.replace("cpu", "none")}
    found = lint(tmp_path, files, ["one.sh", "two.sh"]).findings
    (zero,) = (each for each in found if each["id"] == "zero-of-one-process")
    assert zero["notes"][-1] == "so it is with two.sh"


def test_directives_that_sbatch_does_not_read_are_told_together(tmp_path: Path) -> None:
    found = lint(tmp_path, {"job.slurm": JOB}, ["job.slurm"]).findings
    (late,) = (each["message"] for each in found if each["id"] == "batch-directive-not-read")
    assert late.startswith("`#SBATCH --nodes=1` comes after")
    assert late.endswith("and so does 1 more")


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
