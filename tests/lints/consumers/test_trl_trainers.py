"""What TRL's trainers refuse when they are made: rules about preferences and packing."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import ask_program, example  # noqa: E402
from tests.lints.lint_pages import Example  # noqa: E402
from tests.lints.refusals import Refusal, refusals  # noqa: E402

for needed in ("torch", "transformers", "trl", "datasets", "peft"):
    pytest.importorskip(needed)

REFUSED = (
    # rule, which bad example, words of the refusal
    ("balancing-of-no-experts", 0, "is not a Mixture-of-Experts model"),
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
    return made(example(rule, kind, number), folder, **beside)


def made(file: Example, folder: Path, **beside: Any) -> Any:
    """Make the trainer of `trl KIND` with what a file says; rewards are of no meaning."""
    import datasets
    import transformers
    import trl

    ((name, text),) = file.files.items()
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
    rows = datasets.Dataset.from_list([_ROWS[method]] * 4)
    rewards = [_reward for _ in said.get("reward_funcs", ())]
    return getattr(trl, f"{method}Trainer")(
        model=model(folder / "model"),
        args=config,
        train_dataset=rows.to_iterable_dataset() if said.get("dataset_streaming") else rows,
        processing_class=tokenizer(),
        peft_config=trl.get_peft_config(asked),
        **({"reward_funcs": rewards} if method == "GRPO" else {}),
    )


_ROWS = {
    "SFT": {"text": "a b c"},
    "DPO": {"prompt": "a", "chosen": "b", "rejected": "c"},
    "GRPO": {"prompt": "a b c"},
}
MADE = [case for case in refusals() if case.is_asked and case.program == "trl-trainer"]


@pytest.mark.parametrize("case", MADE, ids=lambda case: case.id)
def test_a_trainer_agrees_with_a_file(case: Refusal, tmp_path: Path) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=re.escape(case.says)):
        made(case.bad, tmp_path / "bad")
    assert case.says not in _refusal(case.mended, tmp_path / "mended")


def _refusal(file: Example, folder: Path) -> str:
    try:
        made(file, folder)
    except Exception as refusal:  # noqa: BLE001  a package may be missing
        return str(refusal)
    return ""


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


def grouped(number: int, kind: str, folder: Path, rule: str, **beside: Any) -> Any:
    """The trainer of `trl grpo` with what an example says, and rewards of no meaning."""
    import datasets
    import trl

    said = yaml.safe_load(example(rule, kind, number).files["grpo.yaml"])
    names = [
        *("num_iterations", "repetition_penalty", "reward_weights", "epsilon", "epsilon_high"),
    ]
    taken = {key: said[key] for key in names if key in said}
    here = {"output_dir": str(folder), "use_cpu": True, "report_to": "none", "bf16": False}
    small = {"per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 4}
    rewards = [_reward for _ in said.get("reward_funcs", [None])]
    return trl.GRPOTrainer(
        model=model(folder / "model"),
        args=trl.GRPOConfig(**here, **small, **taken, max_steps=1, save_strategy="no", **beside),
        train_dataset=datasets.Dataset.from_list([{"prompt": "a b c"}] * 4),
        processing_class=tokenizer(),
        reward_funcs=rewards,
    )


def _reward(completions: list[str], **_: Any) -> list[float]:
    return [float(number) for number, _ in enumerate(completions)]


def test_no_iteration_draws_no_batch(tmp_path: Path) -> None:
    """generation-number-refused"""
    rule = "generation-number-refused"
    made = grouped(0, "bad", tmp_path, rule)
    made.train()
    assert made.state.global_step == 0
    with pytest.raises(ValueError, match=r"strictly positive float, but is 0\.0"):
        grouped(1, "bad", tmp_path, rule).train()
    made = grouped(0, "good", tmp_path, rule)
    made.train()
    assert made.state.global_step == 1


def test_a_reward_has_a_weight(tmp_path: Path) -> None:
    """reward-weights-miscounted"""
    with pytest.raises(ValueError, match="Number of reward weights"):
        grouped(0, "bad", tmp_path, "reward-weights-miscounted")
    grouped(0, "good", tmp_path, "reward-weights-miscounted")


def test_auto_is_no_dtype_of_torch() -> None:
    """compute-dtype-unknown"""
    import trl

    ((_, text),) = example("compute-dtype-unknown", "bad", 0).files.items()
    said = yaml.safe_load(text)
    asked = trl.ModelConfig(load_in_4bit=said["load_in_4bit"], dtype=said["dtype"])
    with pytest.raises(AttributeError, match="no attribute 'auto'"):
        trl.get_quantization_config(asked)


def test_transformers_looks_up_the_kernel_of_attention() -> None:
    """attention-word-unknown"""
    import transformers

    ((_, text),) = example("attention-word-unknown", "bad", 0).files.items()
    config = transformers.LlamaConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    with pytest.raises(ValueError, match="is not supported"):
        transformers.LlamaForCausalLM._from_config(
            config, attn_implementation=yaml.safe_load(text)["attn_implementation"]
        )


def test_a_share_lies_between_0_and_1(tmp_path: Path) -> None:
    """distillation-refused"""
    from trl.experimental.gkd import GKDConfig

    said = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "bf16": False}
    for kind in ("bad", "good"):
        share = yaml.safe_load(example("distillation-refused", kind, 0).files["gkd.yaml"])["lmbda"]
        if kind == "good":
            GKDConfig(**said, lmbda=share)
            continue
        with pytest.raises(ValueError, match="lmbda must be in the range"):
            GKDConfig(**said, lmbda=share)


def test_axolotl_looks_up_the_type_of_a_data_set() -> None:
    """data-set-type-of-another-method"""
    types = [
        yaml.safe_load(example("data-set-type-of-another-method", kind, 0).files["config.yaml"])
        for kind in ("bad", "good")
    ]
    named = [each["datasets"][0]["type"] for each in types]
    question = {"verb": "strategy", "method": "dpo", "types": named}
    assert _asked("axolotl", "0.19.0", question)["found"] == named[1:]


def test_a_loss_of_pairs_is_not_handed_on() -> None:
    """preference-loss-not-computed"""
    said = [
        yaml.safe_load(example("preference-loss-not-computed", kind, 0).files["train.yaml"])
        for kind in ("bad", "good")
    ]
    words = [{key: each[key] for key in ("stage", "pref_loss")} for each in said]
    found = [
        _asked("llamafactory", "0.9.5", {"verb": "loss", "config": each})["loss"] for each in words
    ]
    assert (words[0]["pref_loss"], *found) == ("ipo", "sigmoid", "sigmoid")


def test_batches_of_several_lengths_are_not_joined() -> None:
    """streamed-batches-handed-out"""
    import torch
    from accelerate import data_loader

    state = SimpleNamespace(process_index=0, num_processes=2)
    held: Any = SimpleNamespace(
        state=state, submesh_tp=None, split_batches=False, _update_state_dict=lambda: None
    )
    fetch = data_loader.DataLoaderDispatcher._fetch_batches

    def joined(*lengths: int) -> Any:
        return fetch(held, iter([{"input_ids": torch.ones(1, each)} for each in lengths]))

    with patch.object(data_loader, "broadcast_object_list", lambda *_: None):
        assert joined(4, 4)[0]["input_ids"].shape == (2, 4)
        with pytest.raises(RuntimeError, match="batches of different size"):
            joined(3, 5)


def test_axolotl_asks_for_both_ends_of_new_tokens() -> None:
    """new-tokens-not-trained: of Axolotl"""
    for kind in ("bad", "good"):
        said = yaml.safe_load(example("new-tokens-not-trained", kind, 0).files["config.yaml"])
        for version in ("0.13.2", "0.19.0"):
            answer = _asked("axolotl", version, {"verb": "model", "config": said})
            told = "not properly set when adding new tokens"
            assert (told in answer.get("text", "")) is (kind == "bad")


def test_patterns_of_a_base_freeze_its_adapter() -> None:
    """adapter-frozen-with-the-base"""
    said = yaml.safe_load(example("adapter-frozen-with-the-base", "bad", 0).files["config.yaml"])
    patterns = said["unfrozen_parameters"]
    for version in ("0.13.2", "0.19.0"):
        trained = [
            _asked("axolotl", version, {"verb": "thaw", "adapts": adapts, "patterns": patterns})
            for adapts in (True, False)
        ]
        assert trained[0]["trained"] == []
        assert trained[1]["trained"]


def test_a_layer_has_blocks_and_no_projections() -> None:
    """frozen-modules-missing"""
    keys = ("finetuning_type", "freeze_trainable_layers", "freeze_trainable_modules")
    for kind in ("bad", "good"):
        said = yaml.safe_load(example("frozen-modules-missing", kind, 0).files["train.yaml"])
        config = {key: said[key] for key in keys}
        answer = _asked("llamafactory", "0.9.5", {"verb": "freeze", "config": config})
        assert ("is not found" in answer.get("text", "")) is (kind == "bad")


def test_a_template_without_marks_has_no_mask(tmp_path: Path) -> None:
    """assistant-mask-empty"""
    import datasets
    from trl import SFTConfig, SFTTrainer

    said = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "bf16": False}
    words = tokenizer()
    words.chat_template = "{% for each in messages %}{{ each['content'] }} {% endfor %}"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises((RuntimeError, ValueError), match="template"):
        SFTTrainer(
            model=model(tmp_path / "model"),
            args=SFTConfig(**said, assistant_only_loss=True),
            train_dataset=datasets.Dataset.from_list([{"messages": turns}] * 4),
            processing_class=words,
        )


def _asked(program: str, version: str, question: dict[str, Any]) -> Any:
    (answer,) = ask_program(program, version, [question])
    return answer


def _processor() -> Any:
    import transformers

    class Processor(transformers.ProcessorMixin):  # type: ignore[misc]
        attributes = ("tokenizer",)
        tokenizer_class = "PreTrainedTokenizerFast"

    return Processor(tokenizer())


def test_images_are_not_cut_off(tmp_path: Path) -> None:
    """option-not-for-images"""
    import datasets
    from trl import SFTConfig, SFTTrainer

    ((_, text),) = example("option-not-for-images", "bad", 1).files.items()
    asked = yaml.safe_load(text)
    said = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "bf16": False}
    length = {key: asked[key] for key in ("truncation_mode", "max_length")}
    with pytest.raises(ValueError, match="keep_end"):
        SFTTrainer(
            model=model(tmp_path / "model"),
            args=SFTConfig(**said, **length),
            train_dataset=datasets.Dataset.from_list([{"text": "a b", "images": ["a.png"]}] * 4),
            processing_class=_processor(),
        )


def test_images_are_not_packed(tmp_path: Path) -> None:
    """images-packed"""
    import datasets
    from trl import SFTConfig, SFTTrainer

    ((_, text),) = example("images-packed", "bad", 0).files.items()
    said = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none", "bf16": False}
    rows = datasets.Dataset.from_list([{"text": "a b c", "images": ["a.png"]}] * 4)
    with pytest.raises(ValueError, match="Packing is not supported for vision datasets"):
        SFTTrainer(
            model=model(tmp_path / "model"),
            args=SFTConfig(**said, packing=yaml.safe_load(text)["packing"]),
            train_dataset=rows,
            processing_class=_processor(),
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
