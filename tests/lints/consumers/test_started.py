"""What the installed Trainer, TRL and accelerate make of a run that they start, on a tiny model."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402
from test_libraries import llama  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate", "peft", "trl", "datasets"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


def rows(count: int = 8) -> Any:
    import datasets

    tokens = {"input_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}
    return datasets.Dataset.from_list([tokens] * count)


def trainer(files: dict[str, str], **beside: Any) -> Any:
    """The Trainer as a script makes it from the files of an example."""
    import transformers

    for name, text in files.items():
        Path(name).write_text(text, "utf-8")
    said = yaml.safe_load(files["training_args.yaml"])
    if "accelerate.yaml" in files:
        _launch()
    if "ds_config.json" in files:
        said.setdefault("deepspeed", "ds_config.json")
    here = {"output_dir": "out", "use_cpu": True, "report_to": "none", "bf16": False}
    held = transformers.TrainingArguments(**{**said, **here, **beside})
    return transformers.Trainer(llama(), held, train_dataset=rows(), eval_dataset=rows())


def _launch() -> None:
    """What `accelerate launch` puts into the environment by the file."""
    import os
    from unittest.mock import patch

    from accelerate import DistributedType, PartialState
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    words = ["--config_file", "accelerate.yaml", "train.py"]
    asked, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
    ranks = {key: os.environ[key] for key in ("RANK", "WORLD_SIZE") if key in os.environ}
    os.environ.update({**prepare_multi_gpu_env(asked), **ranks})
    # FSDP is for processes with a GPU each: here they only count as such
    patch("accelerate.utils.dataclasses.is_cuda_available", lambda: True).start()
    patch("torch.cuda.current_device", lambda: 0).start()
    several = ("gloo", DistributedType.MULTI_GPU)
    patch.object(PartialState, "_prepare_backend", lambda *_, **__: several).start()
    patch.object(
        PartialState, "set_device", lambda self: setattr(self, "device", torch.device("cpu"))
    ).start()


STARTED = (
    # rule, which bad example, processes, words of the refusal
    ("auto-find-batch-size-refused", 0, 2, "isn't supported yet with DeepSpeed Zero-3"),
    ("best-model-of-weights-only", 0, 2, "can't be used with `save_only_model`"),
    ("deepspeed-and-fsdp", 0, 2, "together with --deepspeed is not possible"),
    ("fsdp-checkpoints-twice", 0, 2, "can't both be set to True"),
    ("fsdp-weights-only-in-shards", 0, 2, "not compatible with FSDP state dict type"),
    ("fsdp-of-one-process", 0, 1, "Using fsdp only works in distributed training"),
)
TRAINED = (
    ("layerwise-optimizer-refused", 0, 1, "does not support gradient accumulation"),
    ("layerwise-optimizer-refused", 1, 2, "does not support DDP"),
    ("optimizer-targets-missing", 0, 1, "You need to define `optim_target_modules`"),
)


def _optimized(files: dict[str, str]) -> str:
    from unittest.mock import MagicMock, patch

    with (
        patch("transformers.trainer_optimizer.is_galore_torch_available", lambda: True),
        patch.dict(sys.modules, {"galore_torch": MagicMock()}),
    ):
        trainer(files).create_optimizer()
    return "taken"


@pytest.mark.parametrize(("rule", "number", "world", "text"), STARTED)
def test_the_trainer_refuses_to_start(rule: str, number: int, world: int, text: str) -> None:
    answer = apart(
        lambda files: str(trainer(files)), example(rule, "bad", number).files, world=world
    )
    assert text in answer


@pytest.mark.parametrize(("rule", "number", "world", "text"), TRAINED)
def test_the_optimizer_is_refused(rule: str, number: int, world: int, text: str) -> None:
    answer = apart(_optimized, example(rule, "bad", number).files, world=world)
    assert text in answer


# ── what is taken, and does otherwise ────────────────────────────────────────────────────────────


def _trained(arguments: dict[str, Any], **beside: Any) -> dict[str, Any]:
    files = {"training_args.yaml": yaml.safe_dump(arguments)}
    held = trainer(files, **beside)
    before = {name: each.detach().clone() for name, each in held.model.named_parameters()}
    held.train()
    after = dict(held.model.named_parameters())
    return {
        "step": max(float((after[name] - each).abs().max()) for name, each in before.items()),
        "saved": sorted(each.name for each in Path("out").glob("checkpoint-*/*")),
    }


def arguments_of(rule: str, number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(example(rule, "bad", number).files["training_args.yaml"])
    return found


def test_a_checkpoint_of_weights_has_no_optimizer() -> None:
    """resume-of-weights-only"""
    said = {**arguments_of("resume-of-weights-only"), "resume_from_checkpoint": None}
    saved = apart(_trained, {**said, "max_steps": 1, "save_steps": 1})["saved"]
    assert "model.safetensors" in saved
    assert "optimizer.pt" not in saved


def test_a_step_of_adam_is_as_long_as_its_rate() -> None:
    """learning-rate-beyond-adam"""
    said = arguments_of("learning-rate-beyond-adam")
    found = apart(_trained, {**said, "max_steps": 1, "max_grad_norm": 0, "save_strategy": "no"})
    assert found["step"] == pytest.approx(float(said["learning_rate"]), rel=0.05)


def test_fewer_samples_than_a_batch_are_no_step() -> None:
    said = {"per_device_train_batch_size": 16, "dataloader_drop_last": True}
    assert "max_steps must be set to a positive value" in str(apart(_trained, said))


def test_training_stays_on_the_processor() -> None:
    """cpu-beside-accelerators"""
    from unittest.mock import patch

    import transformers

    with patch("torch.cuda.is_available", lambda: True):
        held = transformers.TrainingArguments(
            **{**arguments_of("cpu-beside-accelerators"), "output_dir": "out", "report_to": "none"}
        )
        assert held.device.type == "cpu"


def _columns() -> list[str]:
    import datasets
    import transformers

    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    layers = {"num_hidden_layers": 1}
    vision = transformers.CLIPVisionConfig(**tiny, **layers, image_size=28, patch_size=14)
    text = transformers.LlamaConfig(**tiny, **layers, vocab_size=64)
    config = transformers.LlavaConfig(vision_config=vision, text_config=text)
    model = transformers.LlavaForConditionalGeneration(config)
    said = {**arguments_of("columns-of-images-removed"), "output_dir": "out"}
    held = transformers.TrainingArguments(**{**said, "use_cpu": True, "report_to": "none"})
    data = datasets.Dataset.from_list([{"images": [[1]], "messages": "a", "input_ids": [1]}] * 2)
    made = transformers.Trainer(model, held, train_dataset=data)
    found: list[str] = made._remove_unused_columns(data).column_names
    return found


def test_columns_that_the_collator_needs_are_removed() -> None:
    assert apart(_columns) == ["input_ids"]


def _parallel() -> str:
    held = trainer({"training_args.yaml": "{}"})
    held.args._n_gpu = 4
    return type(held._wrap_model(held.model)).__name__


def test_several_devices_of_one_process_are_data_parallel() -> None:
    """several-devices-in-one-process"""
    assert apart(_parallel) == "DataParallel"


def _generated() -> int:
    import transformers

    tiny = {"d_model": 32, "d_ff": 64, "num_layers": 1, "num_heads": 2, "d_kv": 16}
    config = transformers.T5Config(**tiny, vocab_size=64, decoder_start_token_id=0, eos_token_id=63)
    model = transformers.T5ForConditionalGeneration(config)
    model.generation_config.eos_token_id = None
    said = {**arguments_of("generation-length-missing"), "eval_strategy": "no"}
    held = transformers.Seq2SeqTrainingArguments(
        **{**said, "output_dir": "out", "use_cpu": True, "report_to": "none"}
    )
    data = [{"input_ids": [1, 2], "labels": [3] * 40}] * 2
    collate = transformers.default_data_collator
    made = transformers.Seq2SeqTrainer(model, held, eval_dataset=data, data_collator=collate)
    length: int = made.predict(data).predictions.shape[1]
    return length


def test_nobody_says_how_long_a_generated_text_is() -> None:
    """generation-length-missing: labels of 40 tokens"""
    assert apart(_generated) < 30


def _together() -> bool:
    import transformers

    tiny = {"d_model": 32, "d_ff": 64, "num_layers": 1, "num_heads": 2, "d_kv": 16}
    config = transformers.T5Config(**tiny, vocab_size=64, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config)
    held = transformers.Seq2SeqTrainingArguments(
        output_dir="out", use_cpu=True, report_to="none", predict_with_generate=True
    )
    made = transformers.Seq2SeqTrainer(model, held)
    asked: dict[str, Any] = {}

    def generate(**given: Any) -> Any:
        asked.update(given)
        return given["input_ids"]

    model.generate = generate
    batch = {"input_ids": torch.ones(1, 2, dtype=torch.long), "labels": torch.ones(1, 2).long()}
    transformers.trainer_seq2seq.is_deepspeed_zero3_enabled = lambda: True
    made.prediction_step(model, batch, prediction_loss_only=False)
    return bool(asked["synced_gpus"])


def test_every_process_generates_until_the_last_has_ended() -> None:
    """generation-under-zero-3"""
    assert apart(_together) is True


def _scheduled() -> list[float]:
    from types import ModuleType
    from unittest.mock import patch

    class Free(torch.optim.AdamW):
        def __init__(self, weights: Any, *, lr: float, **_: Any) -> None:
            super().__init__(weights, lr=lr)

    stood = ModuleType("schedulefree")
    stood.AdamWScheduleFree = stood.SGDScheduleFree = Free
    said = arguments_of("schedule-of-a-schedule-free-optimizer")
    with (
        patch.dict(sys.modules, {"schedulefree": stood}),
        patch("transformers.trainer_optimizer.is_schedulefree_available", lambda: True),
    ):
        held = trainer({"training_args.yaml": yaml.safe_dump(said)})
        held.create_optimizer_and_scheduler(num_training_steps=200)
    rates = []
    for _ in range(200):
        rates.append(held.optimizer.param_groups[0]["lr"])
        held.optimizer.step()
        held.lr_scheduler.step()
    return rates


def test_the_rate_falls_for_an_optimizer_without_a_schedule_too() -> None:
    """schedule-of-a-schedule-free-optimizer"""
    rates = apart(_scheduled)
    assert rates[-1] < 0.05 * max(rates)


def _sampler() -> str:
    import datasets

    said = {"train_sampling_strategy": "group_by_length", "max_steps": 1}
    held = trainer({"training_args.yaml": yaml.safe_dump(said)})
    held.train_dataset = datasets.IterableDataset.from_generator(lambda: iter(()))
    return str(held._get_train_sampler())


def test_nothing_is_grouped_that_has_no_length() -> None:
    """grouping-ignored"""
    assert apart(_sampler) == "None"


def _kept() -> str:
    import transformers

    said = {**arguments_of("logits-kept-on-device"), "load_best_model_at_end": False}
    kinds: set[str] = set()
    held = trainer({"training_args.yaml": yaml.safe_dump({**said, "save_strategy": "no"})})
    held.compute_metrics = lambda _: {"accuracy": 1.0}
    seen = transformers.trainer.EvalLoopContainer.add

    def add(self: Any, tensors: Any) -> None:
        seen(self, tensors)
        kinds.add(f"{type(self.tensors).__name__} {type(self.arrays).__name__}")

    transformers.trainer.EvalLoopContainer.add = add
    held.evaluate()
    return " ".join(sorted(kinds))


def test_logits_stay_tensors_until_the_end() -> None:
    """logits-kept-on-device: `eval_accumulation_steps` alone makes arrays of them in between"""
    answer = apart(_kept)
    assert "Tensor" in answer
    assert "ndarray" not in answer


# ── accelerate ───────────────────────────────────────────────────────────────────────────────────


def _mapped() -> str:
    import accelerate

    model = llama()
    model.hf_device_map = {"model": "cpu", "lm_head": "disk"}
    accelerate.Accelerator(cpu=True).prepare_model(model)
    return "taken"


def test_no_device_map_of_several_in_a_distributed_run() -> None:
    """device-map-in-distributed-run"""
    assert "in any distributed mode" in apart(_mapped, world=2)


def _precision() -> str:
    import accelerate

    files = example("accelerate-file-not-read", "bad", 0).files
    Path("accelerate.yaml").write_text(files["accelerate.yaml"], "utf-8")
    return accelerate.Accelerator(cpu=True).mixed_precision


def test_only_accelerate_s_launcher_reads_its_file() -> None:
    """accelerate-file-not-read: `torchrun` starts it, and the file says bf16"""
    assert apart(_precision) == "no"


def test_an_old_driver_and_two_rtx_40_cannot_talk() -> None:
    """peer-access-on-rtx-40"""
    from unittest.mock import patch

    from accelerate.utils import environment

    cards = (["NVIDIA GeForce RTX 4090"] * 2, 2)
    for driver, can in (("535.54.03", False), ("550.40.07", True)):
        with (
            patch.object(environment, "get_gpu_info", lambda: cards),
            patch.object(environment, "get_driver_version", lambda driver=driver: driver),
        ):
            assert environment.check_cuda_p2p_ib_support() is can


def test_an_offloaded_optimizer_is_exchanged() -> None:
    """optimizer-exchanged-on-offload: any but Adagrad and Lion is Adam, with two of its numbers"""
    from unittest.mock import patch

    from accelerate.utils.deepspeed import map_pytorch_optim_to_deepspeed

    weight = torch.nn.Parameter(torch.ones(2))
    mine = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    with patch("deepspeed.ops.op_builder.CPUAdamBuilder.load"):
        found = map_pytorch_optim_to_deepspeed(mine)
    assert type(found).__name__ == "DeepSpeedCPUAdam"
    assert "momentum" not in found.defaults
