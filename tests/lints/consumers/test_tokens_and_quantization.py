"""What transformers and TRL say of quantisation blocks, streams, tokens and CPO's numbers."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from test_trl_trainers import start, tokenizer  # noqa: E402
from tests.lints.lint_pages import Example, examples  # noqa: E402

for needed in ("torch", "transformers", "trl", "datasets", "peft"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


def block(each: Example) -> Mapping[str, Any]:
    """The quantisation block of an example."""
    found: Mapping[str, Any] = yaml.safe_load(each.files["model_args.yaml"])["quantization_config"]
    return found


def made(said: Mapping[str, Any]) -> Any:
    from transformers.quantizers.auto import AutoQuantizationConfig

    return AutoQuantizationConfig.from_dict(dict(said))


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "must be a float"), (1, r"\[2,3,4,8\] bits"), (2, "Unknown quantization type")],
)
def test_a_block_is_checked_when_it_is_read(number: int, words: str) -> None:
    """quantization-setting-refused"""
    pages = list(examples("quantization-setting-refused"))
    bad = [each for each in pages if each.is_bad]
    with pytest.raises((ValueError, TypeError), match=words):
        made(block(bad[number]))
    assert made(block(next(each for each in pages if not each.is_bad))).load_in_8bit


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"quant_method": "hqq", "axis": 2}, "axis|hqq"),
        ({"quant_method": "quanto", "weights": "nf4"}, "Only support weights"),
        ({"quant_method": "gptq", "bits": 4, "damp_percent": 1.5}, "damp_percent"),
        ({"quant_method": "gptq", "bits": 4, "dataset": "alpaca"}, "string value for dataset"),
        ({"quant_method": "fp8", "activation_scheme": "tensor"}, "not supported"),
        ({"load_in_4bit": True, "load_in_8bit": True}, "both True"),
        ({"load_in_4bit": True, "bnb_4bit_quant_storage": "bf16"}, "valid string"),
        ({"load_in_4bit": True, "bnb_4bit_compute_dtype": "bf16"}, "has no attribute 'bf16'"),
    ],
)
def test_other_settings_of_a_block_are_refused(said: Mapping[str, Any], words: str) -> None:
    """quantization-setting-refused, compute-dtype-unknown"""
    with pytest.raises(Exception, match=words):
        made(said)


def test_a_switch_goes_before_the_method() -> None:
    """quantization-setting-refused"""
    held = made({"quant_method": "bnb", "load_in_4bit": True})
    assert type(held).__name__ == "BitsAndBytesConfig"


def test_a_form_says_whether_it_trains() -> None:
    """quantisation-without-training"""
    from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
    from transformers.trainer_utils import validate_quantization_for_training

    from tunec.compiler.lints.checks.quantization.training import _NEVER

    for method in sorted(_NEVER):
        quantizer = AUTO_QUANTIZER_MAPPING[method].__new__(AUTO_QUANTIZER_MAPPING[method])
        assert quantizer.is_trainable is False
    adapted = SimpleNamespace(
        is_quantized=True,
        _hf_peft_config_loaded=False,
        hf_quantizer=SimpleNamespace(
            is_trainable=False,
            is_qat_trainable=True,
            quantization_config=SimpleNamespace(quant_method="fbgemm_fp8"),
        ),
    )
    with pytest.raises(ValueError, match="do not support training"):
        validate_quantization_for_training(adapted)


def test_a_stream_has_no_length(tmp_path: Path) -> None:
    """stream-without-steps"""
    import datasets
    import transformers

    rows = datasets.Dataset.from_list([{"input_ids": [1, 2]}] * 4).to_iterable_dataset()
    tiny = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "vocab_size": 8}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=1, **tiny))
    for steps in (-1, 1):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, report_to="none", max_steps=steps
        )
        if steps > 0:
            transformers.Trainer(model=model, args=arguments, train_dataset=rows)
            continue
        with pytest.raises(ValueError, match="max_steps has to be specified"):
            transformers.Trainer(model=model, args=arguments, train_dataset=rows)


def test_an_end_is_looked_up_in_the_vocabulary(tmp_path: Path) -> None:
    """token-outside-vocabulary"""
    with pytest.raises(ValueError, match="is not found in the vocabulary"):
        start("token-outside-vocabulary", 0, "bad", tmp_path)
    assert tokenizer().convert_tokens_to_ids("<|im_end|>") == tokenizer().unk_token_id


def test_cpo_reads_the_margin_for_one_loss() -> None:
    """cpo-loss-unfit"""
    import torch
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    def loss(word: str, **said: float) -> float:
        held = {"loss_type": word, "beta": 2.0, "simpo_gamma": 0.5, "label_smoothing": 0.0, **said}
        self = SimpleNamespace(
            **held, alpha=0.0, accelerator=SimpleNamespace(device=torch.device("cpu"))
        )
        found = CPOTrainer.cpo_loss(self, torch.tensor([-1.0]), torch.tensor([-2.0]))
        return float(found[0].mean())

    assert loss("sigmoid", simpo_gamma=0.5) == loss("sigmoid", simpo_gamma=1.5)
    assert loss("simpo", simpo_gamma=0.5) != loss("simpo", simpo_gamma=1.5)
    assert loss("hinge") == loss("hinge", label_smoothing=0.1)
    assert next(
        each.default for each in CPOConfig.__dataclass_fields__.values() if each.name == "cpo_alpha"
    )
    with pytest.raises(ValueError, match="Unknown loss type"):
        loss("robust")
