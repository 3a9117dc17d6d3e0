"""Faults planted in compiled files, one of each kind for each consumer: verify names every one."""

from collections.abc import Mapping

import pytest
from tests.verify.edited_runs import EXAMPLE_FILES, SPECS, Fault, both, cases, drop, put, swap
from tests.verify.trainer_faults import FAULTS as TRAINER_FAULTS

from tunec.compiler.verify.queries import verify
from tunec.compiler.verify.report import diagnostics, places_of

DS, HF, LAUNCH, ST = "deepspeed", "huggingface", "launch", "simpletuner"
DS_CONFIG, ARGS, LORA = "ds_config.json", "training_args.yaml", "adapter_config.json"
MODEL, SFT, SH, ACCELERATE = "model_args.yaml", "sft.yaml", "launch.sh", "accelerate.yaml"
CONFIG, ENV, DATA = "config/config.json", "config/config.env", "config/multidatabackend.json"
PARSED, ENGINE = "DeepSpeedConfig", "deepspeed.initialize"
TRAINER, AUTO, PEFT = (
    "TrainingArguments",
    "HfTrainerDeepSpeedConfig",
    "LoraConfig on the module tree",
)
REFUSED = "refused"


def ds(edit, key, resolved, status="differs", program=PARSED, slot=None) -> Fault:
    return Fault("deepspeed", DS, DS_CONFIG, edit, key, resolved, program, status, slot)


def hf(file, edit, key, resolved, program, status="differs", run="deepspeed", slot=None) -> Fault:
    return Fault(run, HF, file, edit, key, resolved, program, status, slot)


def sh(run, edit, key, resolved, program, status="differs", slot=None) -> Fault:
    return Fault(run, LAUNCH, SH, edit, key, resolved, program, status, slot)


def st(file, edit, key, resolved, program, status="differs", slot=None) -> Fault:
    return Fault("flux", ST, file, edit, key, resolved, program, status, slot)


ST_PARSER = "simpletuner parser and checks"
FAULTS: Mapping[str, Fault] = {
    **TRAINER_FAULTS,
    # ds_config.json before DeepSpeed
    "stage": ds(put("zero_optimization.stage", 1), "zero_optimization.stage", 1, slot="zero.stage"),
    "stage in the engine": ds(
        put("zero_optimization.stage", 1), "zero_optimization.stage", 1, program=ENGINE
    ),
    "world off": ds(put("train_batch_size", 16), "train_batch_size", 16, REFUSED),
    "micro batch": ds(
        both(put("train_micro_batch_size_per_gpu", 2), put("train_batch_size", 16)),
        "train_micro_batch_size_per_gpu",
        2,
        slot="batch.micro",
    ),
    "batch in the engine": ds(
        both(put("train_micro_batch_size_per_gpu", 2), put("train_batch_size", 16)),
        "train_batch_size",
        16,
        program=ENGINE,
        slot="batch.global",
    ),
    "both precisions": ds(put("fp16.enabled", True), "fp16.enabled", True, REFUSED),
    "dtype swapped": ds(
        both(put("fp16.enabled", True), put("bf16.enabled", False)), "bf16.enabled", False
    ),
    "gradient dtype": ds(
        put("data_types.grad_accum_dtype", "fp32"),
        "data_types.grad_accum_dtype",
        "fp32",
        slot="states.gradients",
    ),
    "clipping": ds(
        put("gradient_clipping", 0.5), "gradient_clipping", 0.5, slot="optimizer.max_grad_norm"
    ),
    "stage deleted": ds(
        drop("zero_optimization.stage"), "zero_optimization.stage", 0, slot="zero.stage"
    ),
    "optimizer": ds(put("optimizer.type", "Lion"), "optimizer.type", "Lion", REFUSED),
    "rate": ds(
        put("optimizer.params.lr", 2e-3),
        "optimizer.params.lr",
        2e-3,
        slot="optimizer.learning_rate",
    ),
    "schedule": ds(
        put("scheduler.params.warmup_num_steps", 100),
        "scheduler.params.warmup_num_steps",
        100,
        slot="schedule.warmup_steps",
    ),
    "unknown key of the file": ds(
        put("gradient_acumulation_steps", 4), "gradient_acumulation_steps", 4
    ),
    "unknown key of a block": ds(
        put("zero_optimization.overlap_com", True),
        "zero_optimization.overlap_com",
        True,
        REFUSED,
    ),
    "wrong type": ds(
        put("zero_optimization.reduce_bucket_size", "big"),
        "zero_optimization.reduce_bucket_size",
        "big",
        REFUSED,
    ),
    "an adapter's key": ds(put("lora_alpha", 32), "lora_alpha", 32),
    "fp16 of the P100": Fault(
        "p100", DS, DS_CONFIG, put("fp16.enabled", False), "fp16.enabled", False, PARSED, REFUSED
    ),
    # training_args.yaml before transformers
    "trainer: rate": hf(ARGS, put("learning_rate", 2e-3), "learning_rate", 2e-3, TRAINER),
    "trainer: rate deleted": hf(
        ARGS, drop("learning_rate"), "learning_rate", 5e-5, TRAINER, slot="optimizer.learning_rate"
    ),
    "trainer: rate as text": hf(
        ARGS, put("learning_rate", "2e-4"), "learning_rate", "2e-4", TRAINER
    ),
    "trainer: unknown key": hf(
        ARGS, put("per_device_batch_size", 4), "per_device_batch_size", 4, TRAINER, REFUSED
    ),
    "trainer: an adapter's key": hf(
        ARGS, put("lora_alpha", 32), "lora_alpha", 32, TRAINER, REFUSED
    ),
    "trainer: a bare no": hf(
        ARGS, put("eval_strategy", False), "eval_strategy", False, TRAINER, REFUSED
    ),
    "trainer: dtype swapped": hf(
        ARGS, both(put("bf16", False), put("fp16", True)), "bf16", False, TRAINER, run="ddp"
    ),
    "trainer: both precisions": hf(ARGS, put("fp16", True), "fp16", True, TRAINER, REFUSED),
    "trainer: optimizer": hf(ARGS, put("optim", "adafactor"), "optim", "adafactor", TRAINER),
    "trainer: schedule": hf(
        ARGS, put("lr_scheduler_type", "linear"), "lr_scheduler_type", "linear", TRAINER
    ),
    "trainer: clipping": hf(
        ARGS, put("max_grad_norm", 0.5), "max_grad_norm", 0.5, TRAINER, run="ddp"
    ),
    "trainer: warm-up": hf(ARGS, put("warmup_steps", 0), "warmup_steps", 0, TRAINER),
    "trainer: accumulation": hf(
        ARGS,
        put("gradient_accumulation_steps", 2),
        "gradient_accumulation_steps",
        2,
        TRAINER,
        REFUSED,
    ),
    "trainer: columns": hf(
        ARGS,
        drop("ddp_find_unused_parameters"),
        "ddp_find_unused_parameters",
        None,
        TRAINER,
        run="ddp",
    ),
    # ds_config.json before the Trainer, and what DeepSpeed then gets
    "handed on: stage": hf(
        DS_CONFIG, put("zero_optimization.stage", 3), "zero_optimization.stage", 3, AUTO
    ),
    "handed on: stage deleted": hf(
        DS_CONFIG, drop("zero_optimization.stage"), "zero_optimization.stage", 0, PARSED
    ),
    "handed on: micro batch": hf(
        DS_CONFIG,
        put("train_micro_batch_size_per_gpu", 2),
        "train_micro_batch_size_per_gpu",
        2,
        AUTO,
        REFUSED,
    ),
    # adapter_config.json before peft
    "peft: target missing": hf(
        LORA,
        put("target_modules", ["q_proj", "v_porj"]),
        "target_modules",
        ["q_proj", "v_porj"],
        PEFT,
        slot="adapter.targets",
    ),
    "peft: no target there": hf(
        LORA,
        put("target_modules", ["query_key_value"]),
        "target_modules",
        ["query_key_value"],
        PEFT,
        REFUSED,
    ),
    "peft: rank": hf(LORA, put("r", 8), "r", 8, PEFT, slot="adapter.rank"),
    "peft: alpha deleted": hf(LORA, drop("lora_alpha"), "lora_alpha", 8, PEFT),
    "peft: unknown key": hf(LORA, put("rank", 16), "rank", 16, PEFT, REFUSED),
    "peft: trained beside": hf(
        LORA, put("modules_to_save", ["lm_head"]), "modules_to_save", ["lm_head"], PEFT
    ),
    # model_args.yaml and sft.yaml before trl
    "trl: dtype": hf(MODEL, put("dtype", "float16"), "dtype", "float16", "ModelConfig"),
    "trl: quantised": hf(MODEL, put("load_in_4bit", True), "load_in_4bit", True, "ModelConfig"),
    "trl: unknown key": hf(MODEL, put("lora_rank", 8), "lora_rank", 8, "ModelConfig", REFUSED),
    "sft: packing": hf(SFT, put("packing", True), "packing", True, "trl sft"),
    "sft: data": hf(SFT, put("dataset_name", "org/other"), "dataset_name", "org/other", "trl sft"),
    "sft: no adapter": hf(SFT, put("use_peft", False), "use_peft", False, "trl sft"),
    "sft: unknown key": hf(SFT, put("max_len", 9), "max_len", 9, "trl sft", REFUSED),
    # launch.sh before bash and the launchers
    "bash: open quote": sh(
        "deepspeed",
        swap("trl.scripts.sft", "'trl.scripts.sft"),
        "script",
        ['trl.scripts.sft --config trl/sft.yaml "$@"\n'],
        "bash -n",
        REFUSED,
    ),
    "bash: variable": sh(
        "p100",
        swap("export DS_ALLOW_DEPRECATED_FP16=1\n", ""),
        "environment.DS_ALLOW_DEPRECATED_FP16",
        None,
        "bash -n",
        slot="precision.deprecated_fp16",
    ),
    "bash: launcher": sh(
        "ddp", swap("exec torchrun", "exec python"), "launcher", "python", "bash -n"
    ),
    "deepspeed: processes": sh(
        "deepspeed", swap("--num_gpus=8", "--num_gpus=4"), "per_node", 4, "deepspeed launcher"
    ),
    "deepspeed: unknown flag": sh(
        "deepspeed",
        swap("--num_gpus=8", "--num_gpu_s=8"),
        "per_node",
        None,
        "deepspeed launcher",
        REFUSED,
    ),
    "deepspeed: device that is not there": sh(
        "p100",
        swap("--num_gpus=1", "--include=localhost:1"),
        "include",
        ["1"],
        "deepspeed launcher",
        REFUSED,
    ),
    "torchrun: processes": sh(
        "ddp", swap("--nproc_per_node=8", "--nproc_per_node=2"), "per_node", 2, "torchrun"
    ),
    "torchrun: script": sh("ddp", swap("train.py", "other.py"), "script", ["other.py"], "torchrun"),
    # accelerate.yaml before accelerate
    "accelerate: processes": Fault(
        "accelerate",
        LAUNCH,
        ACCELERATE,
        put("num_processes", 4),
        "num_processes",
        4,
        "accelerate config",
    ),
    "accelerate: dtype": Fault(
        "accelerate",
        LAUNCH,
        ACCELERATE,
        put("mixed_precision", "fp16"),
        "mixed_precision",
        "fp16",
        "accelerate config",
    ),
    "accelerate: unknown key": Fault(
        "accelerate",
        LAUNCH,
        ACCELERATE,
        put("num_procs", 8),
        "num_procs",
        8,
        "accelerate config",
        REFUSED,
    ),
    # SimpleTuner
    "simpletuner: rate": st(CONFIG, put("learning_rate", 1e-3), "learning_rate", 1e-3, ST_PARSER),
    "simpletuner: rank": st(CONFIG, put("lora_rank", 8), "lora_rank", 8, ST_PARSER),
    "simpletuner: optimizer": st(
        CONFIG, put("optimizer", "optimi-lion"), "optimizer", "optimi-lion", ST_PARSER
    ),
    "simpletuner: dtype": st(
        CONFIG, put("mixed_precision", "fp16"), "mixed_precision", "fp16", ST_PARSER
    ),
    "simpletuner: schedule deleted": st(
        CONFIG, drop("lr_scheduler"), "lr_scheduler", "constant_with_warmup", ST_PARSER
    ),
    "simpletuner: flag cut short": st(CONFIG, put("lora_r", 8), "lora_rank", 8, ST_PARSER),
    "simpletuner: unknown flag": st(CONFIG, put("lora_rnk", 8), "lora_rnk", 8, ST_PARSER, REFUSED),
    "simpletuner: steps and epochs": st(
        CONFIG, put("num_train_epochs", 2), "num_train_epochs", 2, ST_PARSER, REFUSED
    ),
    "simpletuner: variable": st(
        ENV, swap("=bf16", "=fp16"), "MIXED_PRECISION", "fp16", "simpletuner train"
    ),
    "simpletuner: processes": st(
        ENV, swap("PROCESSES=1", "PROCESSES=2"), "TRAINING_NUM_PROCESSES", "2", "simpletuner train"
    ),
    "simpletuner: size": st(
        DATA, swap("1024", "512"), "[0].resolution", 512, "simpletuner data loader"
    ),
    "simpletuner: folder": st(
        DATA,
        swap('"instance_data_dir": "datasets/images"', '"instance_data_dir": "photos"'),
        "[0].instance_data_dir",
        "photos",
        "simpletuner data loader",
        REFUSED,
    ),
}


@pytest.fixture(scope="module")
def checked():
    """The checks of every run as compiled, and of every fault, all asked at once."""
    whole = [case for run in (*SPECS, *EXAMPLE_FILES) for case in cases(run).values()]
    planted = [fault.case(name) for name, fault in FAULTS.items()]
    return verify([*whole, *planted]), places_of(planted)


def test_without_a_fault_nothing_differs(checked):
    runs = {case.spec for run in (*SPECS, *EXAMPLE_FILES) for case in cases(run).values()}
    found = [each for each in checked[0] if each.spec in runs]
    assert len(found) >= 20
    assert {each.status for each in found} <= {"same", "unchecked"}, found
    _skip_unchecked(found)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(checked, name):
    checks, places = checked
    fault = FAULTS[name]
    of_spec = [each for each in checks if each.spec == name]
    asked = [c for c in of_spec if c.program == fault.program and c.file.endswith(fault.file)]
    if not asked:  # another program comes first, and could not be had
        _skip_unchecked(of_spec)
    (check,) = asked
    _skip_unchecked(asked)
    assert check.status == fault.status, check
    found = [each for each in check.differences if each.key == fault.key]
    assert fault.resolved in [each.resolved for each in found], check
    assert {each.file for each in found} == {f"{name}/{fault.file}"}
    assert not fault.slot or fault.slot in {each.slot for each in found}
    said = [each for each in diagnostics([check], places) if each.id.startswith("E")]
    assert any(label.path == fault.key and label.span for each in said for label in each.labels)


@pytest.mark.parametrize(
    "name", [name for name, fault in FAULTS.items() if fault.expected is not None]
)
def test_what_was_planned_is_named(checked, name):
    fault = FAULTS[name]
    for check in checked[0]:
        if (
            check.spec == name
            and check.program == fault.program
            and check.file.endswith(fault.file)
        ):
            _skip_unchecked([check])
            named = [each.expected for each in check.differences if each.key == fault.key]
            assert fault.expected in named or name in OTHERWISE


OTHERWISE = {"dtype swapped", "batch in the engine", "trainer: dtype swapped"}
"""Where a slot is named in another unit than its key's."""


def _skip_unchecked(checks):
    reasons = {each.reason for each in checks if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {'; '.join(sorted(reasons))}")


def test_there_is_a_fault_for_every_consumer_and_kind():
    assert len(FAULTS) >= 100
    programs = {fault.program for fault in FAULTS.values()}
    assert len(programs) >= 19
