"""Steps, warm-ups and saves are counted as the real samplers, loaders and trainers count them."""

from types import SimpleNamespace

import pytest
from accelerate.data_loader import prepare_data_loader
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import DefaultFlowCallback
from trl import DPOConfig, DPOTrainer
from trl.trainer.utils import RepeatSampler

from tunec.compiler.analyses.cadence import (
    evaluation_steps,
    round_down,
    saving_steps,
    steps_between,
)
from tunec.compiler.analyses.counting import Epoch, count_whole_and_partial
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

EPOCHS = st.integers(1, 4) | st.floats(0.05, 4)


@st.composite
def epochs_of_rows(draw):
    return Epoch(
        draw(st.integers(1, 400)),
        draw(st.integers(1, 7)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 5)),
    )


@st.composite
def epochs_of_prompts(draw):
    """Global batches that hold whole groups, and prompts that fill one at least."""
    answers = draw(st.integers(2, 6))
    micro, processes = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    accumulation = answers * draw(st.integers(1, 2))
    a_step = micro * processes * accumulation // answers
    rows = draw(st.integers(a_step, 300))
    return Epoch(rows, micro, accumulation, processes, answers=answers)


def dealt(loader: DataLoader, epoch: Epoch) -> DataLoader:
    """What the first rank of a run is given of a loader, by accelerate itself."""
    return prepare_data_loader(
        loader, num_processes=epoch.processes, process_index=0, put_on_device=False
    )


def counted(loader: DataLoader, epoch: Epoch, epochs: float) -> int:
    """The steps of a run, by the Trainer's own method."""
    arguments = SimpleNamespace(
        max_steps=-1,
        num_train_epochs=epochs,
        gradient_accumulation_steps=epoch.accumulation,
        per_device_train_batch_size=epoch.micro,
    )
    trainer = SimpleNamespace(
        get_total_train_batch_size=lambda _: 1,
        get_sp_size=lambda: epoch.sequence,
        num_examples=lambda loader: len(loader.dataset),
    )
    return Trainer.set_initial_training_values(trainer, arguments, loader)[-1]


@given(epochs_of_rows(), EPOCHS)
def test_samples_are_counted_as_the_trainer_counts_them(epoch, epochs):
    loader = dealt(DataLoader(range(epoch.rows), batch_size=epoch.micro), epoch)
    assert len(loader) == epoch.micro_batches
    assert sum(1 for _ in loader) == epoch.micro_batches
    assert count_whole_and_partial(epoch, epochs) == counted(loader, epoch, epochs)


@given(epochs_of_prompts(), EPOCHS)
def test_prompts_are_counted_as_trl_s_own_sampler_gives_them(epoch, epochs):
    """trl 1.16.0 trainer/grpo_trainer.py `get_train_dataloader`, `_get_train_sampler`."""
    data = range(epoch.rows)
    together = epoch.micro * epoch.processes * epoch.accumulation
    sampler = RepeatSampler(
        data,
        mini_repeat_count=epoch.answers,
        batch_size=together // epoch.answers,
        repeat_count=epoch.accumulation,
    )
    at_once = epoch.micro * epoch.accumulation
    loader = dealt(DataLoader(data, batch_size=at_once, sampler=sampler), epoch)
    assert count_whole_and_partial(epoch, epochs) == counted(loader, epoch, epochs)


def test_ninety_thousand_prompts():
    epoch = Epoch(90_000, 4, 1, 8, answers=8)
    assert epoch.prompts_a_step == 4
    assert count_whole_and_partial(epoch, 1) == 22_500


@given(st.integers(1, 3000), st.integers(1, 40))
def test_a_run_is_saved_as_often_as_asked_and_at_its_end(steps, times):
    saved = saves(steps, steps_between(steps, times))
    assert saved[-1] == steps
    assert len(saved) <= times


@given(st.integers(1, 20_000), st.floats(0.01, 500), st.booleans())
def test_an_hour_s_work_is_at_risk_and_the_end_is_saved(steps, seconds, keeps_all):
    every = saving_steps(seconds, steps, keeps_all=keeps_all)
    saved = saves(steps, every)
    assert saved[-1] == steps
    if keeps_all:
        assert len(saved) <= 20
    else:
        assert every == 1 or every * seconds <= 3600


def saves(steps: int, every: int) -> list[int]:
    """The steps at which the Trainer's own callback asks for a checkpoint."""
    arguments = TrainingArguments(output_dir="none", save_strategy="steps", save_steps=every)
    state = TrainerState(max_steps=steps, save_steps=every)
    callback, found = DefaultFlowCallback(), []
    arguments.eval_strategy = "no"
    for state.global_step in range(1, steps + 1):
        control = callback.on_step_end(arguments, state, TrainerControl())
        found += [state.global_step] if control.should_save else []
    return found


@pytest.mark.parametrize(
    ("epochs", "steps", "every"),
    [(1, 400, 100), (3, 300, 50), (5, 500, 100), (100, 1000, 100), (None, 40, 10)],
)
def test_evaluation_comes_with_the_epochs_where_they_make_a_curve(epochs, steps, every):
    assert evaluation_steps(epochs, steps) == every


@given(st.floats(1, 1e9))
def test_rounding_keeps_two_digits(number):
    found = round_down(number)
    assert 0.9 * number <= found <= number or number < 10


@given(st.floats(0.001, 0.99), st.integers(1, 5000))
def test_a_share_is_the_trainer_s_own_warm_up(share, steps):
    import math

    arguments = TrainingArguments(output_dir="none", warmup_steps=share)
    assert arguments.get_warmup_steps(steps) == math.ceil(steps * share)


MOST = 200


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    """A real one over a model of one layer; its data and its sizes are changed by each test."""
    words = ["<unk>", "<s>", "</s>", "<pad>", "question", "good", "bad"]
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    kinds = ("unk", "bos", "eos", "pad")
    special = {f"{kind}_token": word for kind, word in zip(kinds, words, strict=False)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **special)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "vocab_size": len(words)}
    config = LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=2)
    folder = str(tmp_path_factory.mktemp("dpo"))
    LlamaForCausalLM(config).save_pretrained(folder)
    row = {"prompt": "question ", "chosen": "good", "rejected": "bad"}
    return DPOTrainer(
        model=folder,
        args=DPOConfig(output_dir=folder, use_cpu=True, bf16=False, report_to="none"),
        train_dataset=Dataset.from_list([row] * MOST),
        processing_class=tokenizer,
    )


@pytest.fixture(scope="module")
def every_pair(trainer):
    return trainer.train_dataset


def loaded(trainer, every_pair, epoch: Epoch) -> DataLoader:
    """What a rank is given of the trainer's own loader, over the sampler that it made."""
    assert len(every_pair) == MOST
    trainer.train_dataset = every_pair.select(range(epoch.rows))
    trainer.args.per_device_train_batch_size = trainer._train_batch_size = epoch.micro
    trainer.args.gradient_accumulation_steps = epoch.accumulation
    own = trainer.get_train_dataloader()
    return prepare_data_loader(
        own.base_dataloader, num_processes=epoch.processes, process_index=0, put_on_device=False
    )


PAIR_EPOCHS = st.builds(
    Epoch, st.integers(1, MOST), st.integers(1, 7), st.integers(1, 6), st.integers(1, 5)
)


@given(PAIR_EPOCHS, st.integers(1, 4) | st.floats(0.05, 4))
def test_pairs_are_counted_as_dpo_trainer_counts_them(trainer, every_pair, epoch, epochs):
    loader = loaded(trainer, every_pair, epoch)
    assert len(loader) == epoch.micro_batches
    trainer.args.num_train_epochs = epochs
    counted = trainer.set_initial_training_values(trainer.args, loader)[-1]
    assert count_whole_and_partial(epoch, epochs) == counted


def test_a_micro_batch_of_pairs_is_twice_as_many_sequences(trainer, every_pair):
    """The sizes of the plan and of the trainer's files are in pairs."""
    loader = loaded(trainer, every_pair, Epoch(rows=6, micro=4, accumulation=1, processes=1))
    sizes = [len(batch["input_ids"]) for batch in loader]
    assert sizes == [8, 4]


@pytest.mark.parametrize(
    ("samples", "batch", "devices", "epochs"),
    [(199, 32, 2, 1), (200, 12, 4, 3), (7, 2, 2, 1), (65, 16, 1, 2)],
)
def test_the_plan_has_the_steps_and_the_warm_up_of_the_trainer(
    trainer, every_pair, samples, batch, devices, epochs
):
    spec = {
        "tunec": 1,
        "model": "llama-3.2-1b",
        "method": "lora",
        "objective": "dpo",
        "data": {"train": "pairs.jsonl", "samples": samples, "sequence": 512},
        "hardware": f"a100-80g-x{devices}",
        "batch": {"global": batch},
        "train": {"epochs": epochs, "warmup": {"share": 0.1}},
    }
    found = plan(load_mapping(spec), (REGISTRY.resolve("trl", {}),))
    assert found.plan is not None, found.diagnostics
    made = found.plan
    epoch = Epoch(samples, made.batch.micro, made.batch.accumulation, made.parallel.data)
    loader = loaded(trainer, every_pair, epoch)
    trainer.args.num_train_epochs = epochs
    steps = trainer.set_initial_training_values(trainer.args, loader)[-1]
    assert made.schedule.steps == steps
    trainer.args.warmup_steps = 0.1
    assert made.schedule.warmup_steps == trainer.args.get_warmup_steps(steps)
