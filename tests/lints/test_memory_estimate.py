"""The memory account of files that somebody wrote: sharding, models that see, evaluation."""

import json

import pytest
from tests.lints.lint_asking import lint

import tunec

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: {version}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  {how}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
FACTORY = """\
model_name_or_path: meta-llama/Llama-2-70b-hf
dataset: alpaca_en_demo
template: llama2
output_dir: out
stage: sft
do_train: true
finetuning_type: {method}
lora_target: all
per_device_train_batch_size: 1
cutoff_len: 1024
learning_rate: 0.00001
bf16: true
"""
WHOLE = {"version": 2, "how": "fsdp_reshard_after_forward: true"}


NAMES = ("accelerate.yaml", "llamafactory.yaml")
GIVEN = ("--model", "llama-2-70b", "--hardware", "dgx-a100-80g")


def names(folder, method, **how):
    texts = ACCELERATE.format(**how), FACTORY.format(method=method)
    return lint(folder, dict(zip(NAMES, texts, strict=True)), [*NAMES, *GIVEN]).names


@pytest.mark.parametrize(
    "how",
    [
        WHOLE,
        {"version": 1, "how": "fsdp_sharding_strategy: FULL_SHARD"},
        {"version": 2, "how": "fsdp_reshard_after_forward: false"},
    ],
)
def test_seventy_billion_trained_in_full_do_not_fit_one_node(tmp_path, how):
    assert "device-memory-exceeded" in names(tmp_path, "full", **how)


def test_shards_on_the_host_do(tmp_path):
    how = {"version": 2, "how": "fsdp_offload_params: true"}
    assert "device-memory-exceeded" not in names(tmp_path, "full", **how)


def test_adapters_do(tmp_path):
    assert "device-memory-exceeded" not in names(tmp_path, "lora", **WHOLE)


def test_without_sharding_adapters_do_not(tmp_path):
    how = {"version": 1, "how": "fsdp_sharding_strategy: NO_SHARD"}
    assert "device-memory-exceeded" in names(tmp_path, "lora", **how)


# ── models that see ──────────────────────────────────────────────────────────────────────────────

TEXT, TOWER, PROJECTOR = 6_738_939_904, 303_507_456, 20_979_712
"""Parameters of LLaVA-1.5-7B."""


def factory(**changes):
    """A file of LLaMA-Factory's about LLaVA."""
    said = {
        "model_name_or_path": "llava-hf/llava-1.5-7b-hf",
        "stage": "sft",
        "template": "llava",
        "dataset": "mllm_demo",
        "finetuning_type": "full",
        "output_dir": "out",
        "per_device_train_batch_size": 1,
        "cutoff_len": 2048,
        "bf16": True,
    }
    return {"factory.yaml": json.dumps(said | changes)}


def whole(found):
    return sum(each.parameters for each in found.account.workload.trained)


def adapted(found):
    return {each.part for each in found.account.workload.adapted}


@pytest.mark.parametrize(
    ("opened", "parameters"),
    [
        ({}, TEXT),
        ({"freeze_vision_tower": False}, TEXT + TOWER),
        ({"freeze_multi_modal_projector": False}, TEXT + PROJECTOR),
    ],
)
def test_llamafactory_trains_what_it_does_not_freeze(estimated, opened, parameters):
    assert whole(estimated(factory(**opened))) == parameters


def test_a_language_model_that_is_frozen_is_not_reckoned(estimated):
    assert estimated(factory(freeze_language_model=True)) is None


def test_its_lora_stays_out_of_what_is_frozen(estimated):
    lora = {"finetuning_type": "lora", "lora_target": "all"}
    assert adapted(estimated(factory(**lora))) == {"text"}
    assert adapted(estimated(factory(**lora, freeze_vision_tower=False))) == {"text", "vision"}


@pytest.mark.parametrize(
    ("model", "said", "tokens", "patches"),
    [
        ("llava-hf/llava-1.5-7b-hf", {"media_dir": "pictures"}, 576, 577),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"image_max_pixels": 28 * 28 * 256}, 256, 1024),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"freeze_vision_tower": True}, 1, 4),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {}, 0, 0),
    ],
)
def test_a_picture_is_as_large_as_a_file_allows_or_else_the_least(
    estimated, model, said, tokens, patches
):
    data = estimated(factory(model_name_or_path=model, **said)).account.workload.data
    assert (data.image_tokens, data.vision_tokens) == (tokens, patches)
    assert data.sequence + data.image_tokens == 2048  # cutoff_len counts both


def test_a_tower_is_left_out_where_it_may_be_quantised_too(estimated):
    lora = {"finetuning_type": "lora", "lora_target": "q_proj", "quantization_bit": 4}
    found = estimated(factory(**lora))
    assert 0.5 * TEXT < found.still_bytes < 0.6 * TEXT + 2 * TOWER


FLAGS = (
    "--output_dir out --per_device_train_batch_size 1 --bf16 True --model_max_length 2048 "
    "--learning_rate 1e-5 --gradient_checkpointing True --num_train_epochs 1 --save_steps 500 "
    "--gradient_accumulation_steps 1 --remove_unused_columns False"
)
LLAVA = "llava/train/train_mem.py --vision_tower openai/clip --image_folder a --data_path b"
QWEN = "train_qwen.py --dataset_use a --model_name_or_path Qwen/Qwen2.5-VL-7B-Instruct"
MINICPM = "finetune.py --llm_type qwen --model_name_or_path openbmb/MiniCPM-V-2_6 --data_path a"
INTERN = (
    "internvl_chat_finetune.py --conv_style internlm2-chat --force_image_size 448 --meta_path a "
    "--model_name_or_path OpenGVLab/InternVL2-8B --max_seq_length 4096"
)
SLICED = "--max_dynamic_patch 6 --dynamic_image_size True"
SERIES = (
    "src/train/train_sft.py --model_id Qwen/Qwen2.5-VL-7B-Instruct --freeze_llm True "
    "--lora_enable True --freeze_merger True --freeze_vision_tower True --vision_lora"
)


@pytest.mark.parametrize(
    ("script", "model", "billions", "parts", "tokens"),
    [
        (LLAVA, "llava-1.5-7b", 6.76, set(), 576),
        (f"{LLAVA} --lora_enable True", "llava-1.5-7b", 0.02, {"text"}, 576),
        (f"{LLAVA} --unfreeze_mm_vision_tower True", "llava-1.5-7b", 7.06, set(), 576),
        (f"{QWEN} --tune_mm_llm True --tune_mm_mlp True", None, 7.66, set(), 1),
        (f"{QWEN} --lora_enable True --max_pixels 50176", None, 0.0, {"text"}, 64),
        (f"{MINICPM} --tune_vision True", None, 8.1, set(), 64),
        (f"{MINICPM} --tune_vision False --max_slice_nums 9", None, 7.68, set(), 640),
        (f"{MINICPM} --use_lora True --tune_llm False", None, 1.03, {"text"}, 64),
        (f"{INTERN} --freeze_backbone True --max_dynamic_patch 6", None, 7.77, set(), 256),
        (f"{INTERN} {SLICED} --freeze_llm True --use_llm_lora 16", None, 0.34, {"text"}, 1280),
        (f"{INTERN} --freeze_llm True --use_llm_lora 16", None, 0.34, {"text"}, 256),
        (f"{SERIES} True", "qwen2.5-vl-7b", 0.0, {"text", "vision"}, 1),
        (f"{SERIES} False", "qwen2.5-vl-7b", 0.0, {"text"}, 1),
    ],
)
def test_each_script_trains_its_own_parts(estimated, script, model, billions, parts, tokens):
    named = ("--model", model) if model else ()
    found = estimated({"train.sh": f"torchrun --nproc_per_node 2 {script} {FLAGS}\n"}, *named)
    assert not found.is_assumed
    assert whole(found) / 1e9 == pytest.approx(billions, abs=0.01)
    assert adapted(found) == parts
    assert found.account.workload.data.image_tokens == tokens


def test_a_flag_that_only_running_tells_leaves_all_open(estimated):
    text = f"python {LLAVA} --lora_enable $LORA {FLAGS}\n"
    assert estimated({"train.sh": text}, "--model", "llava-1.5-7b") is None


@pytest.mark.parametrize("named", ["zero_of_nobody.json", "$CONFIG"])
def test_a_file_that_shards_and_is_not_there_leaves_all_open(estimated, named):
    text = f"torchrun --nproc_per_node 2 {LLAVA} --deepspeed {named} {FLAGS}\n"
    assert estimated({"train.sh": text}, "--model", "llava-1.5-7b") is None


SPEC = """\
tunec: 1
name: plan-and-lint
model: {model}
method: {{lora: {{rank: 16, targets: attention, vision: true}}}}
data: {{train: {train}, samples: 100, sequence: 1024, images: {{per_sample: 1{size}}}}}
hardware: a100-80g-x8
batch: {{global: 8}}
train: {{steps: 10, learning_rate: 1e-5}}
targets: [{target}]
"""


@pytest.mark.parametrize(
    ("target", "model", "size", "share"),
    [
        ("glm4", "glm-4v-9b", "", 1.0),
        ("minicpm-v", "minicpm-v-2_6", ", width: 640, height: 640", 0.95),
        ("trl", "qwen2.5-vl-7b", ", width: 640, height: 640", 0.85),
    ],
)
def test_the_reckoning_of_emitted_files_is_no_more_than_the_plans(
    estimated, tmp_path, target, model, size, share
):
    train = "train.jsonl" if target == "glm4" else "train.json"
    (tmp_path / "spec.yaml").write_text(
        SPEC.format(model=model, target=target, size=size, train=train)
    )
    compiled = tunec.compile(tmp_path / "spec.yaml")
    texts = {each.name: each.text for each in compiled.artifacts[target]}
    found = estimated(texts, *list(texts)[1:], "--model", model, hardware="a100-80g-x8")
    assert share * 0.99 < found.account.peak_bytes / compiled.planned.memory.peak_bytes <= 1.0001


# ── evaluation ───────────────────────────────────────────────────────────────────────────────────

LOGITS = 10 * 32064 * 2048
"""Of one sample of LLaVA's: in 16 bits, in 32, and their log-softmax."""


@pytest.mark.parametrize(
    ("said", "batch"),
    [({"eval_strategy": "steps"}, 8), ({"eval_strategy": "no"}, 1), ({}, 1)]
    + [({"eval_strategy": "epoch", "per_device_eval_batch_size": n}, n) for n in (2, 16, 32)],
)
def test_evaluation_takes_logits_of_its_whole_batch(estimated, said, batch):
    lora = {"finetuning_type": "lora", "lora_target": "q_proj"}
    account = estimated(factory(**lora, **said)).account
    line = next(each for each in account.lines if each.evaluates)
    assert account.layout.batch.evaluation == batch
    terms = line.terms(batch)
    assert terms["logits and loss"] == pytest.approx(batch * LOGITS, rel=0.01)
    assert account.peak.evaluates == (batch > 2)


@pytest.mark.parametrize("said", [{"enable_liger_kernel": True}, {"stage": "rm"}])
def test_no_logits_where_it_is_not_sure_that_they_are_whole(estimated, said):
    found = estimated(factory(finetuning_type="lora", lora_target="q_proj", **said))
    assert found.account.workload.loss == "fused"


# ── recomputation ────────────────────────────────────────────────────────────────────────────────


def trainer(**said):
    """A file of the Trainer's, and the adapter that a script would train."""
    return {
        "training_args.json": json.dumps(
            {
                "output_dir": "out",
                "per_device_train_batch_size": 1,
                "gradient_accumulation_steps": 1,
                "bf16": True,
                "gradient_checkpointing": True,
                "max_length": 2048,
            }
            | said
        ),
        "adapter_config.json": json.dumps(
            {
                "peft_type": "LORA",
                "base_model_name_or_path": "meta-llama/Llama-3.1-8B",
                "target_modules": ["q_proj", "v_proj"],
                "r": 8,
            }
        ),
    }


KWARGS = "gradient_checkpointing_kwargs"


@pytest.mark.parametrize(
    ("files", "release", "variant"),
    [
        (trainer(), "transformers=4.57.6", True),
        (trainer(), "transformers=5.23.0", False),
        (trainer(**{KWARGS: {"use_reentrant": False}}), "transformers=4.57.6", False),
        (trainer(**{KWARGS: {"use_reentrant": True}}), "transformers=5.23.0", True),
        (trainer(gradient_checkpointing=False), "transformers=4.57.6", False),
        (factory(model_name_or_path="meta-llama/Llama-3.1-8B"), "llamafactory=0.9.4", True),
        (
            factory(model_name_or_path="meta-llama/Llama-3.1-8B", use_reentrant_gc=False),
            "llamafactory=0.9.4",
            False,
        ),
    ],
)
def test_recomputation_is_of_the_variant_that_the_files_or_the_release_take(
    estimated, files, release, variant
):
    found = estimated(files, *[*files][1:], "--software", release)
    assert found.account.layout.activation_checkpointing.reentrant is variant


def test_the_variant_counts_beside_frozen_weights(estimated):
    plain, again = (
        estimated(trainer(**{KWARGS: {"use_reentrant": variant}}), "adapter_config.json").account
        for variant in (False, True)
    )
    layer = "last layer backward"
    assert plain.phases[layer] != again.phases[layer]


# ── Python files ─────────────────────────────────────────────────────────────────────────────────

LOADS = """\
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
{0}
SFTTrainer(model, args=SFTConfig("out", max_length=64, per_device_train_batch_size=1))
"""


@pytest.mark.parametrize(
    ("said", "release", "fits"),
    [
        ("", "5.23.0", True),
        ("", "4.57.6", False),  # which loads the weights in fp32
        ("model = get_peft_model(model, config)", "4.57.6", True),
        ("model.model.layers.requires_grad_(False)", "4.57.6", True),
    ],
)
def test_a_python_file_trains_the_model_that_it_loads(tmp_path, said, release, fits):
    words = ("--hardware", "rtx-4080-x1", "--software", f"transformers={release}")
    words = (*words, "--software", "trl=0.19.1")
    answer = lint(tmp_path, {"train.py": LOADS.format(said)}, ("train.py", *words))
    assert ("device-memory-exceeded" not in answer.names) is fits
