"""LOMO's own hooks on a real model: what they hold on the way, and what the Trainer does."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lomo_optim", reason="lomo-optim is not installed")

from tests.driver.planning import planned  # noqa: E402
from tests.recording.traces import run  # noqa: E402

from tunec.compiler.analyses.memory.account import account  # noqa: E402
from tunec.compiler.cli.trace_command import subject_of  # noqa: E402
from tunec.compiler.tracing.comparison import compare  # noqa: E402


def made(optimizer, model, sequence=512, **changes):
    found = planned(
        model=model,
        method="full",
        hardware="a100-80g-x1",
        data={"train": "train.jsonl", "samples": 1000, "sequence": sequence},
        batch={"global": 2},
        train={"optimizer": optimizer},
        **changes,
    )
    assert found.plan is not None, found.diagnostics
    return found


@pytest.mark.parametrize("optimizer", ["lomo", "adalomo"])
@pytest.mark.parametrize(
    ("model", "changes"),
    [
        ("llama-3.2-1b", {}),
        ("llama-3.2-1b", {"pin": {"activation_checkpointing.mode": "layer"}}),
        ("tinyllama-1.1b", {"sequence": 64}),
        ("tinyllama-1.1b", {"precision": "fp32", "sequence": 64}),
    ],
    ids=["tied", "recomputed", "few tokens", "fp32"],
)
def test_the_account_is_that_of_the_real_hooks(optimizer, model, changes):
    """The passes of a trace are those of lomo-optim, the model's gradients those of autograd."""
    found = made(optimizer, model, **changes)
    subject = subject_of(found, found.memory)
    trace = run(subject)
    comparison = compare(trace, account(subject.workload, subject.layout))
    assert comparison.error == pytest.approx(0, abs=0.02)
    assert subject.workload.optimizer.name == optimizer


@pytest.fixture
def tiny():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64}
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    )


def trained(model, folder, **arguments):
    """Every weight after each backward pass of the real Trainer with `optim: lomo`."""
    from transformers import Trainer, TrainingArguments

    seen = []

    class Watched(Trainer):
        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            assert all(each.grad is None for each in self.model.parameters())
            seen.append(self.model.model.norm.weight.detach().clone())
            return loss

    rows = [{"input_ids": torch.arange(8) + at, "labels": torch.arange(8) + at} for at in range(8)]
    said = TrainingArguments(
        output_dir=str(folder),
        optim="lomo",
        learning_rate=0.1,
        lr_scheduler_type="constant",
        per_device_train_batch_size=2,
        report_to="none",
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        seed=1,
        **arguments,
    )
    Watched(model=model, args=said, train_dataset=rows).train()
    return seen


def test_each_micro_batch_is_a_step(tiny, tmp_path):
    """So that tunec accumulates none."""
    seen = trained(tiny, tmp_path, gradient_accumulation_steps=2, max_steps=1)
    assert len(seen) == 2
    assert not torch.equal(seen[0], seen[1])


def test_what_the_trainer_clips_and_decays_has_no_effect(tiny, tmp_path):
    import copy

    plain = trained(copy.deepcopy(tiny), tmp_path, max_steps=2, max_grad_norm=0.0)
    said = trained(copy.deepcopy(tiny), tmp_path, max_steps=2, max_grad_norm=1e-6, weight_decay=0.9)
    assert all(map(torch.equal, plain, said))
