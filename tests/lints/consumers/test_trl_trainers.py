"""What TRL's trainers refuse when they are made: rules about preferences and packing."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import example  # noqa: E402

for needed in ("torch", "transformers", "trl", "datasets", "peft"):
    pytest.importorskip(needed)

REFUSED = (
    # rule, which bad example, words of the refusal
    ("head-adapted-in-preference-training", 0, "Applying a PEFT adapter to `lm_head`"),
    ("label-smoothing-unfit", 0, "Label smoothing must be greater than 0.0"),
    ("packing-without-length", 0, "`max_length` can't be `None`"),
    ("padding-free-not-cut", 0, "`max_length` is not enforced"),
    ("reference-synced-and-precomputed", 0, "sync_ref_model=True"),
)


pytestmark = pytest.mark.usefixtures("own_environment")


def tokenizer() -> Any:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: at for at, word in enumerate(("<unk>", "<pad>", "<eos>", *"abcdef"))}
    held = Tokenizer(models.WordLevel(words, "<unk>"))
    held.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {f"{name}_token": f"<{name}>" for name in ("unk", "pad", "eos")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=held, **special)


def model(folder: Path) -> Any:
    """A tiny model that has been saved, for a reference is loaded anew."""
    import transformers

    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    config = transformers.LlamaConfig(num_hidden_layers=1, **tiny)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return transformers.LlamaForCausalLM.from_pretrained(folder)


def start(rule: str, number: int, kind: str, folder: Path, **beside: Any) -> Any:
    """Make the trainer of `trl KIND` with what the example says."""
    import datasets
    import transformers
    import trl

    bad = example(rule, kind, number)
    ((name, text),) = bad.files.items()
    method = name.removesuffix(".yaml").upper()
    said = {key: each for key, each in yaml.safe_load(text).items() if key != "dataset_name"}
    here = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": "none",
        "bf16": False,
        **beside,
    }
    parser = transformers.HfArgumentParser([getattr(trl, f"{method}Config"), trl.ModelConfig])
    config, asked = parser.parse_dict({**said, **here}, allow_extra_keys=True)
    row = {"text": "a b c"} if method == "SFT" else {"prompt": "a", "chosen": "b", "rejected": "c"}
    return getattr(trl, f"{method}Trainer")(
        model=model(folder / "model"),
        args=config,
        train_dataset=datasets.Dataset.from_list([row] * 4),
        processing_class=tokenizer(),
        peft_config=trl.get_peft_config(asked),
    )


@pytest.mark.parametrize(("rule", "number", "text"), REFUSED)
def test_what_is_called_refused_is_refused(
    rule: str, number: int, text: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"(?s).") as caught:
        start(rule, number, "bad", tmp_path)
    assert text in str(caught.value)


@pytest.mark.parametrize("rule", sorted({row[0] for row in REFUSED}))
def test_the_good_example_is_taken(rule: str, tmp_path: Path) -> None:
    start(rule, 0, "good", tmp_path)


STEP = {"max_steps": 1, "save_strategy": "no", "per_device_train_batch_size": 2}


def test_a_loss_is_looked_up_at_the_first_step(tmp_path: Path) -> None:
    """dpo-loss-unknown"""
    made = start("dpo-loss-unknown", 0, "bad", tmp_path, **STEP)
    with pytest.raises(ValueError, match="Unknown loss type: kto_pair"):
        made.train()


@pytest.mark.parametrize("kind", ["bad", "good"])
def test_a_beta_of_zero_leaves_the_weights(kind: str, tmp_path: Path) -> None:
    """beta-of-zero"""
    made = start("beta-of-zero", 0, kind, tmp_path, **STEP, learning_rate=0.1)
    before = [each.detach().clone() for each in made.model.parameters()]
    made.train()
    after = [each.detach() for each in made.model.parameters()]
    is_same = all(bool((a == b).all()) for a, b in zip(before, after, strict=True))
    assert is_same is (kind == "bad")


def test_a_reference_is_a_second_model(tmp_path: Path) -> None:
    """reference-model-beside-zero-3"""
    made = start("beta-of-zero", 0, "good", tmp_path)
    sizes = [sum(each.numel() for each in m.parameters()) for m in (made.model, made.ref_model)]
    assert sizes[0] == sizes[1]


def test_images_are_not_packed(tmp_path: Path) -> None:
    """images-packed"""
    import datasets
    import transformers
    from trl import SFTConfig, SFTTrainer

    class Processor(transformers.ProcessorMixin):  # type: ignore[misc]
        attributes = ("tokenizer",)
        tokenizer_class = "PreTrainedTokenizerFast"

    ((_, text),) = example("images-packed", "bad", 0).files.items()
    said = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "bf16": False}
    rows = datasets.Dataset.from_list([{"text": "a b c", "images": ["a.png"]}] * 4)
    with pytest.raises(ValueError, match="Packing is not supported for vision datasets"):
        SFTTrainer(
            model=model(tmp_path / "model"),
            args=SFTConfig(**said, packing=yaml.safe_load(text)["packing"]),
            train_dataset=rows,
            processing_class=Processor(tokenizer()),
        )


def test_kto_of_one_sample_is_refused(tmp_path: Path) -> None:
    """kto-batch-of-one"""
    import datasets
    from trl import KTOConfig, KTOTrainer

    rows = [{"prompt": "a", "completion": "b", "label": True}] * 4
    said = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "bf16": False}
    with pytest.raises(ValueError, match="batch size must be > 1"):
        KTOTrainer(
            model=model(tmp_path / "model"),
            args=KTOConfig(**said, per_device_train_batch_size=1),
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=tokenizer(),
        )
