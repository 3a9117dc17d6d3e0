"""What a run does not show is not told: each case has a twin in which the same rule speaks."""

from pathlib import Path

import pytest
from lint_asking import lint

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

SPEAKS: dict[str, Case] = {
    "what accelerate has no value for": (
        "auto-never-filled",
        {
            "run.yaml": TRAINER + "deepspeed: ds.json\n",
            "ds.json": OFFLOADED.replace('"stage": 2,', '"stage": 3, "sub_group_size": "auto",'),
        },
        "",
    ),
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
    "bf16 under torch alone": (
        "bf16-updates-lost",
        {"run.sh": f"torchrun train.py {SLOW} --torch_dtype bfloat16\n"},
        "",
    ),
    "an interval whose strategy is left out": (
        "interval-without-strategy",
        {"run.yaml": TRAINER + "eval_steps: 100\ndo_eval: true\n"},
        "",
    ),
    "options of a recomputation that is left out": (
        "checkpointing-options-ignored",
        {"run.yaml": TRAINER + "gradient_checkpointing_kwargs: {use_reentrant: false}\n"},
        "",
    ),
    "vLLM's keys, and vLLM left out": (
        "vllm-keys-without-vllm",
        {"grpo.yaml": VLLM.replace("use_vllm: true\n", "")},
        "",
    ),
    "stage 3's partition below stage 3": (
        "stage-3-keys-below-stage-3",
        {"ds.json": OFFLOADED.replace('"stage": 2,', '"stage": 2, "zero_hpz_partition_size": 8,')},
        "",
    ),
    "a stage that no source has": (
        "word-not-taken",
        {"run.yaml": STAGE + "stage: modpo\n", "src/tuner.py": 'if stage == "dpo":\n    pass\n'},
        "",
    ),
    "a key that no class has": (
        "key-of-no-release",
        {"run.yaml": STAGE + "stage: sft\nmodal_inputs: true\n", "src/args.py": "modal = 1\n"},
        "",
    ),
    "an option of a stage that is known": (
        "option-of-another-choice",
        {"run.yaml": STAGE + "stage: sft\npref_beta: 0.1\n"},
        "",
    ),
    "a truth value where a folder is expected": (
        "resume-from-a-word",
        {"run.sh": f"torchrun train.py {SLOW} --resume_from_checkpoint False\n"},
        "",
    ),
    "a context that a release has a key for": (
        "trl-pair-of-some-releases",
        {"grpo.yaml": VLLM, "requirements.txt": "trl==0.16.1\n"},
        "",
    ),
    "an optimizer that DeepSpeed takes the place of": (
        "optimizer-exchanged-on-offload",
        {"run.yaml": TRAINER + "deepspeed: ds.json\noptim: adamw_8bit\n", "ds.json": OFFLOADED},
        "",
    ),
    "a rate of adapters for a whole model": (
        "learning-rate-of-the-other-method",
        {"run.sh": f"torchrun train.py {FAST}\n"},
        "",
    ),
    "packed weights of another dtype than the launcher's": (
        "quantised-base-under-fsdp",
        {"run.yaml": QLORA, "accelerate.yaml": FSDP},
        "",
    ),
    "fp16 of SimpleTuner on one device": ("fp16-in-simpletuner", {"config.json": DIFFUSION}, ""),
    "KTO of TRL with one sample": (
        "kto-batch-of-one",
        {
            "kto.yaml": SFT.replace("max_length", "desirable_weight: 1.0\nmax_length")
            + "beta: 0.1\n"
            "per_device_train_batch_size: 1\n"
        },
        "",
    ),
    "a number as text that accelerate reads": (
        "number-as-text",
        {"accelerate.yaml": BLOCK + "  zero_stage: 2\n  gradient_clipping: 1e0\n"},
        "",
    ),
    "activation checkpoints that a script configures": (
        "contiguous-without-partition",
        {"ds.json": CONTIGUOUS, "train.py": "deepspeed.checkpointing.configure(None)\n"},
        "--from deepspeed",
    ),
    "a variable that no caller has": (
        "variable-not-exported",
        {"run.sh": f"HF_HUB_ENABLE_HF_TRANSFER=1\ntorchrun train.py {SCRIPT}"},
        "",
    ),
    "the best model, and nothing that says which": (
        "best-save-unguided",
        {"run.sh": f"torchrun train.py {SLOW} --save_strategy best --eval_strategy epoch\n"},
        "",
    ),
    "a flag that a maker's script does not have": (
        "script-flag-unknown",
        {"run.sh": f"torchrun finetune/finetune.py {STARCODER} --lora_q 8\n"},
        "",
    ),
    "LoRA's keys and no LoRA": ("lora-keys-without-adapter", {"sft.yaml": SFT + "lora_r: 8\n"}, ""),
    "a key that no recipe has": (
        "key-of-no-class",
        {"sft.yaml": SFT + "learning_rate: 2.0e-5\ndata_blend: {a: 1.0}\n"},
        "",
    ),
    "FSDP 2 with an old torch": (
        "fsdp-2-before-torch-2-6",
        {"accelerate.yaml": FSDP_2, "requirements.txt": "torch==2.5.1\n"},
        "",
    ),
    "a field that the release needs": (
        "required-field-missing",
        {"run.yaml": ARGUMENTS, "requirements.txt": "transformers==4.45.2\n"},
        "",
    ),
    "a name on the Hub, and no upload": (
        "hub-keys-without-push",
        {"run.yaml": TRAINER + "hub_model_id: a/b\n"},
        "",
    ),
    "a word where a number belongs": (
        "value-of-another-type",
        {"run.yaml": TRAINER + "max_steps: many\n"},
        "",
    ),
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
    "a recipe whose engine accelerate's file says": (
        "bf16-updates-lost",
        {"sft.yaml": SFT + "torch_dtype: bfloat16\nbf16: true\nlearning_rate: 1.0e-6\n"},
        "",
    ),
    "a script whose engine a file elsewhere says": (
        "bf16-updates-lost",
        {
            "run.sh": "accelerate launch --config_file /elsewhere/zero3.yaml train.py"
            f" {SLOW} --torch_dtype bfloat16\n"
        },
        "",
    ),
    "a stage that the repository's own program has": (
        "word-not-taken",
        {"run.yaml": STAGE + "stage: modpo\n", "src/tuner.py": 'if stage == "modpo":\n    pass\n'},
        "",
    ),
    "a key that the repository's own program has": (
        "key-of-no-release",
        {
            "run.yaml": STAGE + "stage: sft\nmodal_inputs: true\n",
            "src/args.py": "class Arguments:\n    modal_inputs: bool = False\n",
        },
        "",
    ),
    "an option of a stage that a fork has": (
        "option-of-another-choice",
        {"run.yaml": STAGE + "stage: modpo\npref_beta: 0.1\n"},
        "",
    ),
    "the file of an evaluation": (
        "key-of-no-release",
        {"eval.yaml": EVALUATED + "lang: en\nn_shot: 5\nbatch_size: 4\n"},
        "",
    ),
    "a truth value that the script's own class makes": (
        "resume-from-a-word",
        {
            "run.sh": f"torchrun train.py {SLOW} --resume_from_checkpoint False\n",
            "params.py": "class Parameters:\n    resume_from_checkpoint: bool = False\n",
        },
        "",
    ),
    "a context that the release has no key for": (
        "trl-pair-of-some-releases",
        {"grpo.yaml": VLLM, "requirements.txt": "trl==0.14.0\n"},
        "",
    ),
    "a context that the release which a script installs has no key for": (
        "trl-pair-of-some-releases",
        {"grpo.yaml": VLLM, "setup.sh": "# pip install trl==0.16.1\npip install -U trl==0.14.0\n"},
        "",
    ),
    "an optimizer that is a script's own": (
        "optimizer-exchanged-on-offload",
        {"run.yaml": TRAINER + "deepspeed: ds.json\noptim: adamw_4bit\n", "ds.json": OFFLOADED},
        "",
    ),
    "a rate of adapters beside a script's own switch": (
        "learning-rate-of-the-other-method",
        {"run.sh": f"torchrun train.py {FAST} --lora_enable True\n"},
        "",
    ),
    "a launcher's dtype that the trainer replaces": (
        "quantised-base-under-fsdp",
        {"run.yaml": QLORA + "bf16: true\n", "accelerate.yaml": FSDP},
        "",
    ),
    "fp16 of SimpleTuner under DeepSpeed": (
        "fp16-in-simpletuner",
        {"config.json": DIFFUSION, "accelerate.yaml": BLOCK + "  zero_stage: 3\n"},
        "",
    ),
    "KTO of LLaMA-Factory, which pairs samples first": (
        "kto-batch-of-one",
        {"run.yaml": STAGE + "stage: kto\nper_device_train_batch_size: 1\n"},
        "",
    ),
    "a number as text below a block that nothing reads": (
        "number-as-text",
        {"accelerate.yaml": BLOCK + "  zero_stage: 2\n  zero_optimization: {bucket: 5e7}\n"},
        "",
    ),
    "activation checkpoints that no script configures": (
        "contiguous-without-partition",
        {"ds.json": CONTIGUOUS, "train.py": "deepspeed.initialize(model=None)\n"},
        "--from deepspeed",
    ),
    "a variable of the job that starts the script": (
        "variable-not-exported",
        {"run.sh": f"ACCELERATE_USE_DEEPSPEED=false\ntorchrun train.py {SCRIPT}"},
        "",
    ),
    "a preference method of a small model": (
        "preference-rate-as-for-sft",
        {"dpo.yaml": PREFERRED.replace("a/b", "maker/model-160M")},
        "",
    ),
    "rewards, of which no pair is made": (
        "preference-rate-as-for-sft",
        {"grpo.yaml": VLLM + "learning_rate: 2.0e-5\n"},
        "",
    ),
    "an interval beside a recipe that says the strategy": (
        "interval-without-strategy",
        {"run.sh": f"torchrun train.py --config recipe.yaml {SLOW} --eval_steps 100\n"},
        "",
    ),
    "the best model beside a recipe that says which": (
        "best-save-unguided",
        {"run.sh": f"torchrun train.py --config recipe.yaml {SLOW} --save_strategy best\n"},
        "",
    ),
    "flags of another script at the place of a maker's": (
        "script-flag-unknown",
        {
            "run.sh": f"torchrun finetune/finetune.py {SLOW}"
            " --do_train --block_size 8 --train_file a.txt\n"
        },
        "",
    ),
    "a field that a script's own loader gives": (
        "required-field-missing",
        {
            "run.yaml": ARGUMENTS,
            "loader.py": "args = TrainingArguments(**{**config, 'output_dir': out})\n",
            "requirements.txt": "transformers==4.45.2\n",
        },
        "",
    ),
    "LoRA's keys of a script's own class": (
        "lora-keys-without-adapter",
        {"sft.yaml": SFT + "lora_r: 8\n", "train.py": "class Arguments:\n    lora_r: int = 8\n"},
        "",
    ),
    "a key of the handbook's today": (
        "key-of-no-class",
        {"sft.yaml": SFT + "learning_rate: 2.0e-5\ndataset_mixture: {a: 1.0}\n"},
        "",
    ),
    "FSDP 2 with a torch that may be new": (
        "fsdp-2-before-torch-2-6",
        {"accelerate.yaml": FSDP_2, "requirements.txt": "torch>=2.4.0,<2.7.0\n"},
        "",
    ),
    "a rate of the makers of a small model": (
        "learning-rate-of-the-other-method",
        {"run.sh": f"torchrun train.py {FAST.replace(LLAMA, SMALL)}\n"},
        "",
    ),
    "a number of a recipe that TRL's parser reads": (
        "number-as-text",
        {
            "sft.yaml": SFT + "learning_rate: 2e-5\ndataset_mixer: {a: 1.0}\n",
            "train.py": "parser = TrlParser((Arguments, SFTConfig))\n",
            "requirements.txt": "trl==0.9.6\n",
        },
        "",
    ),
    "a flag that argparse takes for the one that begins so": (
        "unknown-key",
        {"run.sh": f"torchrun train.py {MANY} --max_step 50\n"},
        "",
    ),
    "a flag of the repository's own parser": (
        "unknown-key",
        {
            "run.sh": f"torchrun train.py {MANY} --lr_warmup_ratio 0.03\n",
            "train.py": "parser.add_argument('--lr_warmup_ratio')\n",
        },
        "",
    ),
    "an empty word for what no script sets": (
        "resume-from-a-word",
        {"run.sh": 'torchrun train.py --resume_from_checkpoint ${checkpoint:-""} ' + SLOW + "\n"},
        "",
    ),
    "the end of a launcher's flags": (
        "word-taken-for-script",
        {"run.sh": f"accelerate launch --num_processes 2 -- train.py {SLOW}\n"},
        "",
    ),
    "an evaluation that a class of one's own turns on": (
        "interval-without-strategy",
        {
            "run.sh": f"torchrun train.py {SLOW} --eval_steps 100\n",
            "train.py": "class Arguments(TrainingArguments):\n    eval_strategy: str = 'steps'\n",
        },
        "",
    ),
    "an older word of Axolotl's for when to evaluate": (
        "best-model-cadence",
        {
            "run.yaml": "base_model: a/b\nmicro_batch_size: 1\nnum_epochs: 1\noutput_dir: out\n"
            "datasets: [{path: a, type: alpaca}]\nsave_strategy: steps\neval_steps: 100\n"
            "save_steps: 200\nevaluation_strategy: steps\nload_best_model_at_end: true\n"
        },
        "",
    ),
    "a launcher's dtype beside a class that settles its own": (
        "deepspeed-and-trainer-differ",
        {
            "sft.yaml": SFT + "learning_rate: 2.0e-5\n",
            "accelerate.yaml": BLOCK + "  zero_stage: 2\nmixed_precision: bf16\n",
            "requirements.txt": "trl==0.25.0\n",
        },
        "",
    ),
    "a config that unsloth puts in place of TRL's": (
        "field-of-another-release",
        {
            "train.py": "from unsloth import FastModel\nfrom trl import SFTConfig\n"
            "arguments = SFTConfig(output_dir='out', max_seq_length=1024)\n",
            "requirements.txt": "trl==0.25.0\n",
        },
        "train.py",
    ),
    "an option of a trainer of one's own": (
        "clip-bounds-crossed",
        {
            "grpo.yaml": VLLM + "learning_rate: 1.0e-6\ndelta: 0.8\n",
            "config.py": "class Config(GRPOConfig):\n    delta: float = 0.5\n",
        },
        "",
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
    "evaluation": (
        "interval-without-strategy",
        {"run.yaml": TRAINER + 'eval_strategy: "no"\neval_steps: 100\n'},
        "",
    ),
    "recomputation": (
        "checkpointing-options-ignored",
        {
            "run.yaml": TRAINER + "gradient_checkpointing: false\n"
            "gradient_checkpointing_kwargs: {use_reentrant: false}\n"
        },
        "",
    ),
    "vLLM": (
        "vllm-keys-without-vllm",
        {"grpo.yaml": VLLM.replace("vllm: true", "vllm: false")},
        "",
    ),
    "stage 3": (
        "stage-3-keys-below-stage-3",
        {"ds.json": OFFLOADED.replace('"stage": 2,', '"stage": 2, "sub_group_size": 1e9,')},
        "",
    ),
    "an upload": (
        "hub-keys-without-push",
        {"run.yaml": TRAINER + "hub_model_id: a/b\npush_to_hub: false\n"},
        "",
    ),
    "all evaluation": (
        "interval-without-strategy",
        {"run.yaml": TRAINER + "do_eval: false\neval_steps: 100\n"},
        "",
    ),
    "accelerate's checks": (
        "debugging-left-on",
        {"accelerate.yaml": "debug: true\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"},
        "",
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
