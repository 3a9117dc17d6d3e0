"""Steps of preference training are counted as TRL's own DPOTrainer counts them."""

import pytest
from accelerate.data_loader import prepare_data_loader
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

from tunec.compiler.analyses.counting import Epoch, of_whole_and_partial
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

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


EPOCHS = st.builds(
    Epoch, st.integers(1, MOST), st.integers(1, 7), st.integers(1, 6), st.integers(1, 5)
)


@given(EPOCHS, st.integers(1, 4) | st.floats(0.05, 4))
def test_pairs_are_counted_as_dpo_trainer_counts_them(trainer, every_pair, epoch, epochs):
    loader = loaded(trainer, every_pair, epoch)
    assert len(loader) == epoch.micro_batches
    trainer.args.num_train_epochs = epochs
    counted = trainer.set_initial_training_values(trainer.args, loader)[-1]
    assert of_whole_and_partial(epoch, epochs) == counted


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
