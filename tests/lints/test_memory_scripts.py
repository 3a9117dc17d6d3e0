"""The memory account of scripts whose flags say little: what they do unasked counts as well."""

import json

import pytest
from tests.lints.lint_asking import lint
from tests.lints.test_memory_estimate import factory as of_llava
from tests.lints.test_memory_estimate import whole

QLORA = "python qlora.py --model_name_or_path meta-llama/Llama-2-7b-hf --output_dir o --bf16 True"
FASTCHAT = (
    "deepspeed fastchat/train/train_lora.py --model_name_or_path lmsys/vicuna-7b-v1.5 "
    "--data_path d.json --bf16 True --output_dir o --per_device_train_batch_size 1 --lora_r 8 "
    "--model_max_length 1024 --gradient_checkpointing True --deepspeed ds.json"
)
CHATGLM = (
    "deepspeed --num_gpus 1 main.py --deepspeed ds.json --do_train --train_file t.json --fp16 "
    "--prompt_column content --response_column summary --model_name_or_path THUDM/chatglm2-6b "
    "--output_dir o --max_source_length 64 --max_target_length 64 --per_device_train_batch_size 4"
)
COOKBOOK = "finetuning.py --model_name meta-llama/Llama-2-7b-hf --output_dir o"
VISUALGLM = (
    "deepspeed finetune_visualglm.py --experiment-name e --model-parallel-size 1 --mode finetune "
    "--train-iters 300 --resume-dataloader --max_source_length 64 --max_target_length 256 "
    "--lora_rank 10 --train-data t.json --distributed-backend nccl --lr-decay-style cosine "
    "--checkpoint-activations --zero-stage 1 --batch-size 4 --skip-init --fp16"
)
ZERO_2 = {
    "train_micro_batch_size_per_gpu": "auto",
    "fp16": {"enabled": "auto"},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
}


def started(command, **zero):
    """The files of a run that a command starts."""
    engine = {**ZERO_2, "zero_optimization": {**ZERO_2["zero_optimization"], **zero}}
    files = {"train.sh": f"{command}\n"}
    return files | ({"ds.json": json.dumps(engine)} if "ds.json" in command else {})


def factory(**changes):
    """A file of LLaMA-Factory's about a language model."""
    text = {"model_name_or_path": "meta-llama/Llama-2-7b-hf", "template": "llama2"}
    text |= {"dataset": "alpaca_en_demo", "finetuning_type": "lora", "cutoff_len": 1024}
    return of_llava(**text | changes)


# ── scripts on the trainer ───────────────────────────────────────────────────────────────────────


def test_qlora_does_much_unasked(estimated):
    account = estimated(started(QLORA), hardware="rtx-3090-x1").account
    workload, layout = account.workload, account.layout
    assert (workload.quantization.format, workload.adapter.rank) == ("nf4", 64)
    assert (layout.batch.micro, workload.data.sequence) == (1, 1024 + 256)
    assert workload.optimizer.name == "paged_adamw_32bit"
    assert layout.activation_checkpointing.mode == "layer"
    assert {each.part for each in workload.adapted} == {"text"}
    assert whole(estimated(started(QLORA), hardware="rtx-3090-x1")) == 0


def test_qlora_is_told_otherwise(estimated):
    said = f"{QLORA} --bits 8 --lora_r 16 --source_max_len 16 --target_max_len 512 --optim sgd"
    workload = estimated(started(said), hardware="rtx-3090-x1").account.workload
    assert (workload.quantization.format, workload.adapter.rank) == ("int8", 16)
    assert (workload.data.sequence, workload.optimizer.name) == (528, "sgd")


@pytest.mark.parametrize(
    ("start", "is_reckoned"), [("", False), ("torchrun --nproc_per_node=2 ", 1)]
)
def test_a_process_that_spreads_a_model_by_itself_is_not_reckoned(estimated, start, is_reckoned):
    command = f"{start}{QLORA.removeprefix('python ')}" if start else QLORA
    assert (estimated(started(command), hardware="rtx-3090-x2") is not None) == is_reckoned


@pytest.mark.parametrize(("said", "form"), [("", "none"), (" --q_lora True", "nf4")])
def test_fastchat_trains_adapters_alone(estimated, said, form):
    found = estimated(started(f"{FASTCHAT}{said}"), "--model", "llama-2-7b")
    assert found.account.workload.quantization.format == form
    assert (whole(found), found.account.workload.adapter.rank) == (0, 8)


def test_chatglm_trains_the_whole_model_without_a_prefix(estimated):
    found = estimated(started(CHATGLM), "--model", "chatglm3-6b", hardware="a100-sxm4-80g-x1")
    assert whole(found) == sum(e.parameters for e in found.account.workload.architecture.modules)
    assert not found.is_assumed


def test_a_prefix_alone_is_not_reckoned(estimated):
    command = f"{CHATGLM} --pre_seq_len 128"
    assert estimated(started(command), "--model", "chatglm3-6b") is None


@pytest.mark.parametrize(("command", "told"), [(FASTCHAT, False), (CHATGLM, True)])
def test_ram_is_asked_for_what_a_script_trains(tmp_path, command, told):
    files = started(command, offload_optimizer={"device": "cpu"})
    arguments = ["train.sh", "ds.json", "--model", "chatglm3-6b", "--hardware", "kaggle-t4-x2"]
    assert ("offload-beyond-host-memory" in lint(tmp_path, files, arguments).names) == told


# ── programs with a loop of their own ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("start", ["python ", "python -m llama_recipes."])
def test_the_cookbook_packs_four_long_samples_unasked(estimated, start):
    command = (
        f"{start}{COOKBOOK}" if start == "python " else f"{start}{COOKBOOK}".replace(".py", "")
    )
    found = estimated(started(command), hardware="a100-sxm4-80g-x1")
    assert found.account.layout.batch.micro == 4
    assert found.account.workload.data.sequence == 4096
    assert found.account.layout.activation_checkpointing.mode == "none"
    assert whole(found) == 6_738_415_616


def test_the_cookbook_shards(estimated):
    command = f"torchrun --nproc_per_node 8 {COOKBOOK} --enable_fsdp --use_peft"
    account = estimated(started(command), hardware="a100-sxm4-80g-x8").account
    assert (account.layout.parallel.engine, account.layout.fsdp.version) == ("fsdp", 1)
    assert account.layout.activation_checkpointing.mode == "layer"
    assert account.workload.adapter.kind == "lora"


@pytest.mark.parametrize(
    ("release", "mode"), [((), "layer"), (("--software", "llama-cookbook=0.0.5.post1"), "none")]
)
def test_an_older_cookbook_recomputes_over_eight_bits(estimated, release, mode):
    command = f"python {COOKBOOK} --use_peft --quantization 8bit"
    account = estimated(started(command), *release, hardware="a10-x1").account
    assert account.workload.quantization.format == "int8"
    assert account.layout.activation_checkpointing.mode == mode


@pytest.mark.parametrize(("flag", "form"), [("--use_lora", "none"), ("--use_qlora", "nf4")])
def test_visualglm_stores_its_base_by_a_flag(estimated, flag, form):
    found = estimated(started(f"{VISUALGLM} {flag}"), hardware="rtx-3090-x4")
    assert found.account.workload.quantization.format == form
    assert (whole(found), found.account.workload.adapter.rank) == (0, 10)
    assert found.account.layout.batch.micro == 4
    zero = found.account.layout.zero
    assert (zero.stage, zero.reduce_bucket, zero.contiguous_gradients) == (1, 40_000_000, False)


def test_without_either_flag_visualglm_is_not_reckoned(estimated):
    assert estimated(started(VISUALGLM), "--model", "visualglm-6b") is None


# ── what files of trainers say ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "reference", "loss"),
    [
        ({"stage": "dpo"}, "none", "full"),
        ({"stage": "dpo", "finetuning_type": "full"}, "resident", "full"),
        ({"stage": "dpo", "finetuning_type": "full", "pref_loss": "simpo"}, "none", "full"),
        ({"stage": "rm"}, "none", "fused"),
    ],
)
def test_a_pair_is_two_sequences(estimated, said, reference, loss):
    workload = estimated(factory(**said)).account.workload
    assert (workload.preference.sequences, workload.preference.reference) == (2, reference)
    assert workload.loss == loss


def test_a_reward_model_of_trl_gives_one_number(estimated):
    said = {"model_name_or_path": "Qwen/Qwen2.5-7B", "output_dir": "out", "bf16": True}
    said |= {"center_rewards_coefficient": 0.01, "max_length": 1024}
    workload = estimated({"reward.yaml": json.dumps(said)}).account.workload
    assert (workload.preference.sequences, workload.preference.reference) == (2, "none")
    assert (workload.architecture.kind, workload.loss) == ("sequence-classifier", "full")
    assert workload.architecture.vocab == 1


def test_llamafactory_adapts_every_linear_layer_unasked(estimated):
    found = estimated(factory(lora_rank=8)).account.workload
    names = {next(each.names()).rpartition(".")[2] for each in found.adapted}
    assert names == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }


@pytest.mark.parametrize(
    ("said", "kernel"),
    [
        ({}, "fused"),
        ({"optim": "adamw_torch"}, "foreach"),
        ({"optim": "adamw_torch_fused"}, "fused"),
    ],
)
def test_the_optimizer_steps_as_is_written(estimated, said, kernel):
    assert estimated(factory(**said)).account.workload.optimizer.kernel == kernel


def test_a_named_release_steps_as_it_does_unasked(estimated):
    found = estimated(factory(), "--software", "transformers=4.46.3")
    assert found.account.workload.optimizer.kernel == "foreach"


def test_a_release_between_those_that_are_known_is_no_fault(tmp_path):
    arguments = ["factory.yaml", "--software", "transformers=4.41.2"]
    assert lint(tmp_path, factory(), arguments).code == 0


@pytest.mark.parametrize("size", [200_000_000, 500_000_000])
def test_buckets_are_those_of_the_file(estimated, size):
    files = started(f"{FASTCHAT}", reduce_bucket_size=size, overlap_comm=True)
    zero = estimated(files, "--model", "llama-2-7b").account.layout.zero
    assert (zero.reduce_bucket, zero.overlap_comm) == (size, True)


def test_axolotl_computes_in_16_bits_where_the_device_decides(estimated):
    said = {
        "base_model": "meta-llama/Meta-Llama-3-8B",
        "datasets": [{"path": "d.jsonl", "type": "alpaca"}],
        "output_dir": "o",
        "sequence_len": 2048,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "optimizer": "paged_adamw_8bit",
        "learning_rate": 0.00001,
        "bf16": "auto",
    }
    found = estimated({"c.yaml": json.dumps(said)}, hardware="rtx-4090-x1")
    assert found.account.workload.precision.compute == "bf16"
    assert found.account.workload.optimizer.name == "paged_adamw_8bit"


@pytest.mark.parametrize("key", ["activation_checkpointing", "fsdp_activation_checkpointing"])
def test_fsdp_recomputes_by_itself(estimated, key):
    said = {
        "base_model": "meta-llama/Llama-3.2-3B",
        "datasets": [{"path": "d.jsonl", "type": "alpaca"}],
        "output_dir": "o",
        "sequence_len": 8192,
        "micro_batch_size": 16,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
        "optimizer": "adamw_torch_fused",
        "learning_rate": 0.00001,
        "bf16": True,
        "fsdp_version": 2,
        "fsdp_config": {"reshard_after_forward": True, key: True},
    }
    account = estimated({"c.yaml": json.dumps(said)}).account
    assert account.layout.activation_checkpointing.mode == "layer"
    assert account.layout.parallel.engine == "fsdp"


@pytest.mark.parametrize(("hardware", "severity"), [("x8", "warning"), ("x1", "error")])
def test_a_file_alone_may_be_sharded_by_its_launcher(tmp_path, hardware, severity):
    arguments = ["factory.yaml", "--hardware", f"rtx-3090-{hardware}"]
    found = lint(tmp_path, factory(finetuning_type="full"), arguments).findings
    told = [each for each in found if each["id"] == "device-memory-exceeded"]
    assert [each["severity"] for each in told] == [severity]


def test_what_leaves_no_room_for_the_driver_is_told(estimated, tmp_path):
    found = estimated(factory(finetuning_type="full", pure_bf16=True), hardware="rtx-4090-x1")
    assert 0.5 * 2**30 < found.beside_bytes < 2**30
    assert found.beside == "CUDA context, cuBLAS workspace"


# ── what only running tells ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [
        f"{QLORA} --bits $BITS",
        f"{FASTCHAT} --q_lora $PACK",
        f"{CHATGLM} --pre_seq_len $PREFIX",
        f"python {COOKBOOK} --use_peft $ADAPT",
    ],
)
def test_a_flag_that_only_running_tells_is_not_guessed(estimated, command):
    assert estimated(started(command), "--model", "llama-2-7b", hardware="rtx-3090-x1") is None


def test_a_script_of_the_same_name_is_not_fastchats(estimated):
    command = FASTCHAT.replace("fastchat/train/", "")
    found = estimated(started(command), "--model", "llama-2-7b")
    assert found is None or found.is_assumed


def test_flags_of_trl_to_a_script_of_ones_own_tell_nothing(estimated):
    flags = "--model_name_or_path meta-llama/Llama-2-7b-hf --output_dir o --bf16 True"
    assert estimated(started(f"python my.py {flags}")).is_assumed
    assert not estimated(started(f"trl sft {flags}")).is_assumed
