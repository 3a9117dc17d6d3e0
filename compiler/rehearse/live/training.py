"""Runs the Trainer with the files for a few steps, and observes it from inside."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

from tunec.compiler.rehearse.live.engine_report import (
    EngineObservations,
    engine_of,
    read,
    watch_clipping,
    watch_engine,
    watch_model,
)


def reload(trainer: Any, steps: int) -> dict[str, Any]:
    """Load the last checkpoint as a resumed run does: weights, optimizer and schedule.

    Returns `saved`, the directory's files, and `reloaded`: `yes`, or the exception.
    """
    folder = Path(trainer.args.output_dir, f"checkpoint-{steps}")
    if not folder.is_dir():
        return {"reloaded": "no checkpoint was saved", "saved": []}
    saved = sorted(path.name for path in folder.iterdir())
    before = _sum(trainer)
    try:
        _spoil(trainer)
        _load(trainer, str(folder))
    except Exception as fault:  # noqa: BLE001  whatever is raised is the answer
        return {"reloaded": f"{type(fault).__name__}: {fault}", "saved": saved}
    same = abs(_sum(trainer) - before) <= 1e-3 * max(1.0, abs(before))
    return {
        "reloaded": "yes" if same else "the loaded weights differ from the saved ones",
        "saved": saved,
    }


def _load(trainer: Any, folder: str) -> None:
    """Do what `Trainer._inner_training_loop` does with `resume_from_checkpoint`."""
    if engine_of(trainer) is not None:
        from transformers.integrations.deepspeed import deepspeed_load_checkpoint

        adapted = hasattr(engine_of(trainer).module, "peft_config")
        deepspeed_load_checkpoint(engine_of(trainer), folder, load_module_strict=not adapted)
        return
    trainer._load_from_checkpoint(folder)  # noqa: SLF001
    trainer._load_optimizer_and_scheduler(folder)  # noqa: SLF001


def _trained(trainer: Any) -> list[Any]:
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    return [_here(each) for each in model.parameters() if each.requires_grad]


def _here(parameter: Any) -> Any:
    """The part of a parameter on this rank, which is its shard with ZeRO 3."""
    return getattr(parameter, "ds_tensor", parameter)


def _sum(trainer: Any) -> float:
    return float(sum(each.detach().double().abs().sum() for each in _trained(trainer)))


def _spoil(trainer: Any) -> None:
    """Overwrite the weights, so that only a checkpoint that is really read restores them."""
    with torch.no_grad():
        for each in _trained(trainer):
            each.data.fill_(7.0)


_REWARD: Final = "reward.yaml"
_WRITING: Final = transformers.AutoModelForCausalLM


def build(question: Mapping[str, Any], arguments: Any, quantization: Any = None) -> torch.nn.Module:
    """The model as a training script builds it from model_args.yaml and adapter_config.json.

    `quantization` is passed to `from_pretrained`; None means an unquantised base. It is called
    after the Trainer's arguments are made, so that with ZeRO 3 each rank creates only its shards.
    """
    torch.manual_seed(arguments.seed)
    content = dict(question["model_config"])
    config = transformers.CONFIG_MAPPING[content["model_type"]].from_dict(content)
    config.use_cache = False
    dtype = getattr(torch, question["dtype"])
    labelled = question["script"] == _REWARD
    maker = transformers.AutoModelForSequenceClassification if labelled else _WRITING
    model: Any = maker.from_config(config, dtype=dtype, attn_implementation=question["attention"])
    if quantization is not None:
        model = _quantised(model, dtype, question["attention"], quantization)
    if Path("adapter_config.json").exists():
        import peft

        if arguments.gradient_checkpointing:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.PeftConfig.from_pretrained("."))
    return torch.nn.Module.train(model)


def _quantised(model: Any, dtype: torch.dtype, attention: str, quantization: Any) -> Any:
    """Pass the model's weights through `from_pretrained`, which quantises them."""
    return type(model).from_pretrained(
        None,
        config=model.config,
        state_dict=model.state_dict(),
        dtype=dtype,
        attn_implementation=attention,
        quantization_config=quantization,
    )


def tokenizer(vocabulary: int) -> Any:
    """A tokenizer with a word for each token, the last being the end token: enough for TRL."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {f"t{at}": at for at in range(vocabulary)}
    end = f"t{vocabulary - 1}"
    made = Tokenizer(WordLevel(words, unk_token=end))
    made.pre_tokenizer = WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=end, pad_token=end, unk_token=end
    )


class Tokens(torch.utils.data.Dataset):  # type: ignore[misc]  # torch is not typed
    """Samples of random tokens, the same on every rank."""

    def __init__(self, samples: int, sequence: int, vocabulary: int) -> None:
        source = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, vocabulary, (samples, sequence), generator=source)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[at], "labels": self.tokens[at]}


def train(question: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Train as the question's script file describes, and report what ran.

    Progress is written to `folder`, unless it is None.
    """
    transformers.logging.set_verbosity_error()
    _tell(folder, "starting the engine")
    seen = EngineObservations()
    trainer = _MAKERS[question["script"]](question, [_Stop(seen, question["steps"], folder)])
    trainer.seen = seen
    watch_clipping(seen, trainer)
    trainer.train()
    found = read(seen, trainer)
    _tell(folder, "loading the checkpoint")
    found |= reload(trainer, question["steps"])
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return found


def _tell(folder: Path | None, text: str) -> None:
    if folder is not None:
        with Path(folder, "progress.txt").open("a", encoding="utf-8") as out:
            out.write(text + "\n")


class _Watched:
    """A Trainer that records each of its micro batches."""

    seen: EngineObservations
    is_watched = False
    rows = 1
    """Rows of a micro batch per sample: two for a pair of answers."""

    def training_step(self, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
        """Train and record one micro batch."""
        if not self.is_watched:
            self.is_watched = True
            watch_model(self.seen, model)
            if (engine := engine_of(self)) is not None:
                watch_engine(self.seen, engine)
        self.seen.micro.append(len(inputs["input_ids"]) // self.rows)
        loss = super().training_step(model, inputs, *more, **options)  # type: ignore[misc]
        self.seen.losses.append(float(loss))
        return loss


def _own_script(question: Mapping[str, Any], callbacks: list[Any]) -> Any:
    """The Trainer as a user's script makes it from training_args.yaml and the files beside it."""
    (arguments,) = HfArgumentParser([TrainingArguments]).parse_yaml_file("training_args.yaml")
    model = build(question, arguments, _quantization() if question["quantised"] else None)
    kind = type("Watched", (_Watched, Trainer), {})
    return kind(model=model, args=arguments, train_dataset=_tokens(question), callbacks=callbacks)


def _quantization() -> Any:
    """The quantization config that trl makes from model_args.yaml."""
    import trl

    (held,) = HfArgumentParser([trl.ModelConfig]).parse_yaml_file("model_args.yaml")
    return trl.get_quantization_config(held)


def _tokens(question: Mapping[str, Any]) -> Tokens:
    return Tokens(question["samples"], question["sequence"], question["vocabulary"])


def _sft(question: Mapping[str, Any], callbacks: list[Any]) -> Any:
    """The trainer of `trl sft --config sft.yaml` (trl 1.16.0 scripts/sft.py), with our data.

    The model is ours too.
    """
    import datasets
    import trl

    known = (trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig, trl.DatasetMixtureConfig)
    parser = trl.TrlParser(known)
    _, arguments, named, _ = parser.parse_args_and_config(["--config", "sft.yaml"])
    model = build(question, arguments, trl.get_quantization_config(named))
    samples = [each["input_ids"].tolist() for each in _each(_tokens(question))]
    kind = type("Watched", (_Watched, trl.SFTTrainer), {})
    return kind(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_dict({"input_ids": samples}),
        processing_class=tokenizer(question["vocabulary"]),
        peft_config=trl.get_peft_config(named),
        callbacks=callbacks,
    )


def _dpo(question: Mapping[str, Any], callbacks: list[Any]) -> Any:
    """The trainer of `trl dpo --config dpo.yaml` (trl 1.16.0 scripts/dpo.py), with our data.

    The model is ours too. Given a model's name, the real trainer loads a second one as the
    reference if there is no adapter to turn off and the reference is not precomputed.
    """
    import datasets
    import trl

    known = (trl.ScriptArguments, trl.DPOConfig, trl.ModelConfig, trl.DatasetMixtureConfig)
    parser = trl.TrlParser(known)
    _, arguments, named, _ = parser.parse_args_and_config(["--config", "dpo.yaml"])
    stored, adapter = trl.get_quantization_config(named), trl.get_peft_config(named)
    alone = adapter is not None or arguments.precompute_ref_log_probs
    pairs = [_pair(each["input_ids"].tolist()) for each in _each(_tokens(question))]
    kind = type("Watched", (_Watched, trl.DPOTrainer), {"rows": 2})
    return kind(
        model=build(question, arguments, stored),
        ref_model=None if alone else build(question, arguments, stored),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(pairs),
        processing_class=tokenizer(question["vocabulary"]),
        peft_config=adapter,
        callbacks=callbacks,
    )


def _reward(question: Mapping[str, Any], callbacks: list[Any]) -> Any:
    """The trainer of `trl reward --config reward.yaml` (trl 1.16.0 scripts/reward.py), on our data.

    The model is ours too, with the head of one label that the real trainer asks for.
    """
    import datasets
    import trl

    known = (trl.ScriptArguments, trl.RewardConfig, trl.ModelConfig, trl.DatasetMixtureConfig)
    _, arguments, named, _ = trl.TrlParser(known).parse_args_and_config(["--config", _REWARD])
    pairs = [_pair(each["input_ids"].tolist()) for each in _each(_tokens(question))]
    kind = type("Watched", (_Watched, trl.RewardTrainer), {"rows": 2})
    return kind(
        model=build(question, arguments, trl.get_quantization_config(named)),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(pairs),
        processing_class=tokenizer(question["vocabulary"]),
        peft_config=trl.get_peft_config(named),
        callbacks=callbacks,
    )


def _pair(tokens: list[int]) -> dict[str, str]:
    """A prompt of a quarter of the tokens; the next half is chosen, and in reverse rejected."""
    words = [f"t{each}" for each in tokens]
    quarter = len(words) // 4
    prompt, answer = words[:quarter], words[quarter : 3 * quarter]
    spoken = {"prompt": prompt, "chosen": ["", *answer], "rejected": ["", *reversed(answer)]}
    return {name: " ".join(each) for name, each in spoken.items()}


def _each(tokens: Tokens) -> Iterator[Any]:
    return (tokens[at] for at in range(len(tokens)))


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, Any], list[Any]], Any]]] = {
    "training_args.yaml": _own_script,
    "sft.yaml": _sft,
    "dpo.yaml": _dpo,
    _REWARD: _reward,
}


class _Stop(TrainerCallback):  # type: ignore[misc]
    """Records the run, and stops it after `steps` steps with a checkpoint."""

    def __init__(self, seen: EngineObservations, steps: int, folder: Path | None) -> None:
        self.seen, self.steps, self.folder = seen, steps, folder

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **given: Any) -> None:
        """Record the learning rate and the number of micro batches before a step."""
        self.seen.rates.append(float(given["optimizer"].param_groups[0]["lr"]))
        self.seen.begun.append(len(self.seen.micro))

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **given: Any) -> None:
        """Record the gradients; with DeepSpeed the engine has stepped already."""
        self.seen.note_gradients(given["model"])

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """Report the progress, and save and stop after the last step."""
        _tell(self.folder, f"step {state.global_step} of {self.steps}")
        control.should_save = state.global_step >= self.steps
        control.should_training_stop = state.global_step >= self.steps
