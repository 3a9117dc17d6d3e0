"""Faults planted in the files of the trainers' own scripts, of TRL and of accelerate."""

from collections.abc import Mapping

from tests.verify.edited_runs import Fault, drop, put, swap

REFUSED = "refused"
SCRIPT, PARSER, COOKBOOK, SAT = (
    "FinetuningConfig.from_file",
    "finetune.py HfArgumentParser",
    "llama_cookbook update_config",
    "sat get_args",
)
AUTO, PEFT = "HfTrainerDeepSpeedConfig", "LoraConfig on the module tree"


def glm(edit, key, resolved, program=SCRIPT, status="differs", slot=None, file="finetune.yaml"):
    return Fault("glm4", "glm4", file, edit, key, resolved, program, status, slot)


def minicpm(old, new, key, resolved, program=PARSER, status="differs", slot=None):
    return Fault(
        "minicpm", "minicpm-v", "finetune.sh", swap(old, new), key, resolved, program, status, slot
    )


def cookbook(old, new, key, resolved, status="differs", slot=None, run="cookbook"):
    return Fault(
        *(run, "llama-cookbook", "finetuning.sh", swap(old, new)),
        *(f"flags.{key}", resolved, COOKBOOK, status, slot),
    )


def visualglm(old, new, key, resolved, status="differs", slot=None):
    return Fault(
        *("visualglm", "visualglm", "finetune_visualglm.sh", swap(old, new)),
        *(f"flags.{key}", resolved, SAT, status, slot),
    )


def trl(edit, key, resolved, program="trl sft", status="differs", slot=None, file="sft.yaml"):
    return Fault("deepspeed", "trl", file, edit, key, resolved, program, status, slot)


def accelerate(edit, key, resolved, status="differs", slot=None, run="accelerate"):
    program = "accelerate launch"
    return Fault(run, "accelerate", "accelerate.yaml", edit, key, resolved, program, status, slot)


def sharded(name, value, slot):
    key = f"fsdp_config.fsdp_{name}"
    return accelerate(put(key, value), key, value, slot=slot, run="fsdp")


STAGE = "zero_optimization.stage"
RATE = "optimizer.learning_rate"
FAULTS: Mapping[str, Fault] = {
    # glm4
    "glm4: rate": glm(
        put("training_args.learning_rate", 2e-3), "training_args.learning_rate", 2e-3, slot=RATE
    ),
    "glm4: rate deleted": glm(
        drop("training_args.learning_rate"), "training_args.learning_rate", 5e-5, slot=RATE
    ),
    "glm4: rank": glm(put("peft_config.r", 16), "peft_config.r", 16, slot="adapter.rank"),
    "glm4: length": glm(
        put("max_input_length", 256), "max_input_length", 256, slot="data.sequence"
    ),
    "glm4: data": glm(
        put("data_config.train_file", "other.jsonl"),
        "data_config.train_file",
        "other.jsonl",
        slot="data.train",
    ),
    "glm4: frozen": glm(put("freezeV", True), "freezeV", True, slot="adapter.frozen"),
    "glm4: unknown key": glm(put("freeze_vision", True), "freeze_vision", True, status=REFUSED),
    "glm4: a key of another release": glm(
        put("training_args.gradient_checkpointing_enable", True),
        "training_args.gradient_checkpointing_enable",
        True,
        status=REFUSED,
    ),
    "glm4: no such modules": glm(
        put("peft_config.target_modules", ["c_attn"]),
        "peft_config.target_modules",
        ["c_attn"],
        PEFT,
        REFUSED,
    ),
    "glm4: stage": glm(put(STAGE, 2), STAGE, 2, AUTO, slot="zero.stage", file="ds_config.json"),
    "glm4: processes": glm(
        swap("--num_gpus=8", "--num_gpus=4"),
        "per_node",
        4,
        "deepspeed launcher",
        file="launch.sh",
    ),
    # minicpm-v
    "minicpm-v: rate": minicpm(
        "--learning_rate 0.0002", "--learning_rate 0.002", "flags.learning_rate", 2e-3, slot=RATE
    ),
    "minicpm-v: rank": minicpm("--lora_r 64", "--lora_r 8", "flags.lora_r", 8, slot="adapter.rank"),
    "minicpm-v: precision": minicpm(
        "--bf16 true", "--bf16 false", "flags.bf16", False, PARSER, REFUSED
    ),
    "minicpm-v: vision": minicpm(
        "--tune_vision false",
        "--tune_vision true",
        "flags.tune_vision",
        True,
        slot="adapter.also_train",
    ),
    "minicpm-v: chat format deleted": minicpm(
        "  --llm_type qwen \\\n", "", "flags.llm_type", "minicpm"
    ),
    "minicpm-v: unknown flag": minicpm(
        "--lora_r 64", "--lora_r 64 --lora_rank 8", "flags.lora_rank", 8, PARSER, REFUSED
    ),
    "minicpm-v: processes": minicpm(
        "--num_gpus=2", "--num_gpus=1", "per_node", 1, "deepspeed launcher"
    ),
    "minicpm-v: stage": Fault(
        *("minicpm", "minicpm-v", "ds_config.json", put(STAGE, 2), STAGE, 2, AUTO),
    ),
    # llama-cookbook
    "cookbook: rate": cookbook("--lr 0.0002", "--lr 0.002", "lr", 2e-3, slot=RATE),
    "cookbook: rank": cookbook(
        "--lora_config.r 8", "--lora_config.r 4", "lora_config.r", 4, slot="adapter.rank"
    ),
    "cookbook: batch deleted": cookbook(
        "  --gradient_accumulation_steps 2 \\\n",
        "",
        "gradient_accumulation_steps",
        1,
        slot="batch.accumulation",
    ),
    "cookbook: bits": cookbook(
        "--quantization 4bit",
        "--quantization 8bit",
        "quantization",
        "8bit",
        slot="quantization.format",
    ),
    "cookbook: compute": cookbook(
        "--quantization_config.compute_dtype bfloat16",
        "--quantization_config.compute_dtype float32",
        "quantization_config.compute_dtype",
        "float32",
        slot="quantization.compute",
    ),
    "cookbook: precision": cookbook(
        "--use_fp16 False", "--use_fp16 True", "use_fp16", True, slot="precision.compute"
    ),
    "cookbook: offload": cookbook(
        "--fsdp_config.fsdp_cpu_offload False",
        "--fsdp_config.fsdp_cpu_offload True",
        "fsdp_config.fsdp_cpu_offload",
        True,
        slot="fsdp.offload_params",
        run="cookbook on fsdp",
    ),
    "cookbook: engine": cookbook(
        "--enable_fsdp True", "--enable_fsdp False", "enable_fsdp", False, run="cookbook on fsdp"
    ),
    "cookbook: unknown flag": cookbook(
        "--lr 0.0002", "--lr 0.0002 --batch_size 2", "batch_size", 2
    ),
    "cookbook: documented, and not known": cookbook(
        "--quantization 4bit", "--quantization int4", "quantization", "int4", REFUSED
    ),
    # visualglm
    "visualglm: rank": visualglm(
        "--lora_rank 10", "--lora_rank 4", "lora_rank", 4, slot="adapter.rank"
    ),
    "visualglm: length": visualglm(
        "--train-iters 300", "--train-iters 100", "train-iters", 100, slot="schedule.steps"
    ),
    "visualglm: recomputation deleted": visualglm(
        "  --checkpoint-activations \\\n",
        "",
        "checkpoint-activations",
        False,
        slot="activation_checkpointing.mode",
    ),
    "visualglm: the published advice": visualglm(
        "--use_lora", "--use_lora --fp32", "fp32", True, REFUSED
    ),
    "visualglm: micro batch": Fault(
        *("visualglm", "visualglm", "ds_config.json", put("gradient_clipping", 0.5)),
        *("gradient_clipping", 0.5, "DeepSpeedConfig", "differs", "optimizer.max_grad_norm"),
    ),
    # trl
    "trl: rate": trl(put("learning_rate", 2e-3), "learning_rate", 2e-3, slot=RATE),
    "trl: rate deleted": trl(drop("learning_rate"), "learning_rate", 2e-5, slot=RATE),
    "trl: rank": trl(put("lora_r", 4), "lora_r", 4, slot="adapter.rank"),
    "trl: length": trl(put("max_length", 512), "max_length", 512, slot="data.sequence"),
    "trl: another objective's key": trl(put("beta", 0.1), "beta", 0.1, status=REFUSED),
    "trl: quantised": trl(
        put("load_in_4bit", True), "load_in_4bit", True, slot="quantization.format"
    ),
    "trl: no such modules": trl(
        put("lora_target_modules", ["c_attn"]), "lora_target_modules", ["c_attn"], PEFT, REFUSED
    ),
    "trl: stage": trl(put(STAGE, 1), STAGE, 1, AUTO, file="ds_config.json"),
    # accelerate
    "accelerate: processes": accelerate(
        put("num_processes", 4), "num_processes", 4, slot="parallel.world"
    ),
    "accelerate: engine": accelerate(
        put("distributed_type", "NO"), "distributed_type", "NO", slot="parallel.engine"
    ),
    "accelerate: precision": accelerate(
        put("mixed_precision", "fp16"), "mixed_precision", "fp16", slot="precision.compute"
    ),
    "accelerate: unknown key": accelerate(
        put("mixed_precison", "bf16"), "mixed_precison", "bf16", REFUSED
    ),
    "fsdp: version": sharded("version", 1, slot="fsdp.version"),
    "fsdp: sharding": sharded("reshard_after_forward", False, slot="fsdp.sharding"),
    "fsdp: offload": sharded("offload_params", True, slot="fsdp.offload_params"),
    "fsdp: checkpoints": sharded("state_dict_type", "SHARDED_STATE_DICT", slot="fsdp.state_dict"),
    "fsdp: units": sharded("auto_wrap_policy", "NO_WRAP", slot="fsdp.wrap"),
    "accelerate: half a section": accelerate(
        put("distributed_type", "DEEPSPEED"), "distributed_type", "DEEPSPEED"
    ),
}
