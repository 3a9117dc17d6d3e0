"""What rules say of evaluation that generates, asked of the real Seq2SeqTrainer."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

import yaml  # noqa: E402
from apart import apart  # noqa: E402
from programs import example  # noqa: E402
from test_libraries import llama  # noqa: E402

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("own_environment")

RULES = ("generation-beside-loss-only", "generation-keys-unread")


def _generated(said: dict[str, Any], folder: Path) -> bool:
    """Whether a model is asked to generate when it is evaluated."""
    tiny = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_heads": 2, "num_layers": 1, "vocab_size": 16}
    config = transformers.T5Config(**tiny, decoder_start_token_id=0)
    model = transformers.T5ForConditionalGeneration(config)
    here = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "bf16": False}
    arguments = transformers.Seq2SeqTrainingArguments(**{**said, **here})
    rows = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor([3, 4])}] * 2
    scores = {"eval_dataset": rows, "compute_metrics": lambda _: {}}
    trainer = transformers.Seq2SeqTrainer(model, arguments, **scores)
    with patch.object(model, "generate", wraps=model.generate) as asked:
        trainer.evaluate(max_length=4)
    return bool(asked.call_count)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_generated_unless_both_say_so(rule: str, tmp_path: Path) -> None:
    """generation-beside-loss-only, generation-keys-unread"""
    for kind in ("bad", "good"):
        said = yaml.safe_load(example(rule, kind, 0).files["training_args.yaml"])
        assert _generated({**said, "eval_strategy": "no"}, tmp_path) is (kind == "good")


def _generating() -> str:
    """A wrapped model is asked for text past FSDP's own root, as `generate` of the Trainer does."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    units = ModuleWrapPolicy({LlamaDecoderLayer})
    here = {"auto_wrap_policy": units, "use_orig_params": True, "device_id": torch.device("cpu")}
    model = FullyShardedDataParallel(llama(), **here)
    model.module.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=1)
    return "generated"


def test_the_root_of_fsdp_is_a_share_while_it_generates() -> None:
    """generation-under-fsdp-1"""
    assert "'weight' must be 2-D" in apart(_generating, world=2)
