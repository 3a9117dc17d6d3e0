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


def start(rule: str, number: int, kind: str, folder: Path) -> None:
    """Make the trainer of `trl KIND` with what the example says."""
    import datasets
    import transformers
    import trl

    bad = example(rule, kind, number)
    ((name, text),) = bad.files.items()
    method = name.removesuffix(".yaml").upper()
    said = {key: each for key, each in yaml.safe_load(text).items() if key != "dataset_name"}
    here = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "bf16": False}
    parser = transformers.HfArgumentParser([getattr(trl, f"{method}Config"), trl.ModelConfig])
    config, asked = parser.parse_dict({**said, **here}, allow_extra_keys=True)
    row = {"text": "a b c"} if method == "SFT" else {"prompt": "a", "chosen": "b", "rejected": "c"}
    getattr(trl, f"{method}Trainer")(
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
