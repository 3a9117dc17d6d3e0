"""Runs the Trainer with the files for a few steps, and observes it from inside."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

from tunec.compiler.rehearse.live.checkpoint import reload
from tunec.compiler.rehearse.live.engine_report import (
    Seen,
    engine_of,
    read,
    watch_clipping,
    watch_engine,
    watch_model,
)
from tunec.compiler.rehearse.live.model import Tokens, build, tokenizer


def train(question: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Train as the question's script file describes, and report what ran.

    Progress is written to `folder`, unless it is None.
    """
    transformers.logging.set_verbosity_error()
    _tell(folder, "starting the engine")
    seen = Seen()
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

    seen: Seen
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
}


class _Stop(TrainerCallback):  # type: ignore[misc]
    """Records the run, and stops it after `steps` steps with a checkpoint."""

    def __init__(self, seen: Seen, steps: int, folder: Path | None) -> None:
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
