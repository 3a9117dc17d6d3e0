"""Reference and reward models, and their trained parts."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label, Term
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.lora import is_true, last, loras
from tunec.compiler.lints.facts.training_loop import (
    GROUPED,
    PAIRED,
    PREFERENCES,
    grouped,
    preferences,
    trl,
    whole,
)
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace


@rule("warning", "step", consumers=("trl",), reads=PREFERENCES)
def reference_model_beside_zero_3(run: LintContext) -> Iterator[Finding]:
    """A reference model of full size beside a policy that ZeRO-3 shards."""
    stage = run.effective("deepspeed", "zero_optimization.stage")
    if stage.value != 3 or stage.place is None:
        return
    for document, name in preferences(run):
        at = _named_at(document)
        if name not in PAIRED or at is None or run.value("adapter.kind") == "lora":
            continue
        if document.value("precompute_ref_log_probs") is True:
            continue
        size = run.model.architecture.parameters if run.model is not None else None
        yield Finding(
            f"{name.upper()} of a whole model keeps a second one, the reference, under ZeRO-3",
            (at.label("needs a reference"), stage.place.label("", primary=False)),
            (
                *(
                    [f"{size / 1e9:.1f} billion parameters, {size * 2 / 2**30:.1f} GiB in bf16"]
                    if size
                    else []
                ),
                "the engine has to manage it too: trl takes care of that since 0.7.2",
                "a script that loads it on its own fails with: 'weight' must be 2-D",
            ),
            "use LoRA, whose reference is the model without the adapter, or a loss without one",
            severity="note",
        )


def _named_at(document: Document) -> Place | None:
    found = (document.get(key) for key in ("stage", "rl", "beta", "model_name_or_path"))
    return next((at for at in found if at is not None), None)


reference_synced_and_precomputed = rows(
    "reference-synced-and-precomputed",
    "error",
    "init",
    consumers=("trl",),
    rows=(
        Row(
            "dpo|kto:sync_ref_model=true & precompute_ref_log_probs=true",
            "sync_ref_model cannot be combined with precompute_ref_log_probs",
            label="updates the reference",
            beside_label="assumes that it is fixed",
            help="turn off sync_ref_model, or precompute_ref_log_probs",
            mend=Mend("unsafe", write=False, at=1),
        ),
    ),
)


_TASK: Final = "SEQ_CLS"
_OWN: Final = "center_rewards_coefficient"
"""A field that only RewardConfig has."""

_WITHOUT_GENERATE: Final = "4.52"
"""Since this release classifiers have no `prepare_inputs_for_generation` (transformers
modeling_utils.py `PreTrainedModel`, no GenerationMixin), which peft's
`PeftModelForCausalLM.__init__` reads."""
_AT_RANDOM: Final = (
    "the head starts at random: the adapter is trained with it, and meets a different one when it "
    "is loaded"
)
_TRAINED_REFUSED: Final = (
    f"since transformers {_WITHOUT_GENERATE} the adapter of a causal model is not made for a "
    "classifier: AttributeError, no attribute 'prepare_inputs_for_generation'"
)


@rule("warning", "silent", consumers=("trl",), reads=keys("sft|reward|hf", "use_peft"))
def reward_head_not_trained(run: LintContext) -> Iterator[Finding]:
    """A reward model is trained by LoRA for another task type, so its head stays random."""
    started = {each.name for each in run.of("launch") if _rewards(each)}
    for document in run.of("sft", "reward", "hf"):
        use, task = document.get("use_peft"), document.get("lora_task_type")
        if document.is_view or use is None or not is_true(use.value):
            continue
        is_reward = document.name in started or "reward" in PurePath(document.name).stem.lower()
        if not is_reward and document.get(_OWN) is None:
            continue
        saved = str(document.value("lora_modules_to_save") or "")
        if (task is not None and task.value == _TASK) or "score" in saved:
            continue
        at = task or use
        refused = run.runs(f"transformers>={_WITHOUT_GENERATE}")
        yield Finding(
            f"the adapter's task is {task.value if task else 'CAUSAL_LM'}, and a reward is trained",
            (at.label("the head `score` is neither trained nor saved"),),
            (_TRAINED_REFUSED if refused else _AT_RANDOM,),
            f"write lora_task_type: {_TASK}",
            Fix((task.replaced(_TASK),), "unsafe") if task is not None else None,
            consequence="init" if refused else None,
        )


def _rewards(launch: Document) -> bool:
    """Whether a command starts `trl reward`, or a script with that name."""
    words = launch.value("script")
    named = words[:2] if isinstance(words, list | tuple) else [words]
    return any(isinstance(each, str) and "reward" in PurePath(each).stem.lower() for each in named)


@rule("error", "init", consumers=("trl", "axolotl"), reads=grouped("reward_weights"))
def reward_weights_miscounted(run: LintContext) -> Iterator[Finding]:
    """`reward_weights` has as many numbers as there are rewards."""
    for document, method in preferences(run):
        weights, rewards = trl(document, "reward_weights"), trl(document, "reward_funcs")
        if method not in GROUPED or weights is None or rewards is None:
            continue
        count, wanted = _count(weights.value), _count(rewards.value)
        model = trl(document, "reward_model_name_or_path")
        wanted = wanted + 1 if wanted is not None and model is not None else wanted
        if count is not None and wanted is not None and count != wanted:
            yield Finding(
                f"TRL needs {wanted} reward_weights, one for each reward, not {count}",
                (weights.label("one for each"), rewards.label("", primary=False)),
                ("TRL's script counts the reward model too",) if model else (),
                f"write a list of {wanted}",
            )


def _count(value: object) -> int | None:
    if isinstance(value, list):
        return len(value)
    return 1 if isinstance(value, str | int | float) and not isinstance(value, bool) else None


_READ_BY_THE_LOSS: Final = ("sft", "dpo", "grpo", "kto", "rloo")
"""trl 1.15.0 and 1.16.0 trainer/sft_trainer.py, dpo_trainer.py, grpo_trainer.py, kto_trainer.py and
rloo_trainer.py: Applying a PEFT adapter to `lm_head` is not supported."""


@rule(
    "error",
    "init",
    consumers=("trl>=1.15",),
    reads=(*keys("sft|dpo|grpo|kto|rloo", "lora_target_modules"), "peft:target_modules"),
)
def head_adapted_in_preference_training(run: LintContext) -> Iterator[Finding]:
    """LoRA is applied to the head, whose weight the loss reads directly."""
    if not run.of(*_READ_BY_THE_LOSS):
        return
    for lora in loras(run):
        at = lora.place("target_modules")
        if lora.document.kind not in (*_READ_BY_THE_LOSS, "peft") or at is None:
            continue
        if isinstance(lora.targets, tuple) and any(
            last(each) == "lm_head" for each in lora.targets
        ):
            yield Finding(
                "LoRA on lm_head is refused: the loss reads the head's own weight",
                (at.label("lm_head"),),
                ("log-probabilities are computed from lm_head.weight, past any adapter",),
                "leave lm_head out of the targets",
            )


_STREAM_REFUSED: Final[Mapping[str, str]] = {"grpo": "trl>=0.17,<1.9", "rloo": "trl>=0.22,<1.9"}
"""Releases that refuse every stream."""
_DISPATCH: Final = "accelerator_config.dispatch_batches=true"


@rule("error", "init", consumers=("trl",), reads=keys("grpo|rloo", "dataset_streaming"))
def stream_in_grouped_training(run: LintContext) -> Iterator[Finding]:
    """Prompts are streamed to a trainer that samples several answers to each."""
    for document in run.of(*_STREAM_REFUSED):
        stream = where(document, "dataset_streaming=true")
        if document.is_view or stream is None:
            continue
        is_late, handed = run.runs("trl>=1.9"), where(document, _DISPATCH)
        if run.runs(_STREAM_REFUSED[document.kind]):
            yield Finding(
                f"dataset_streaming is refused by {run.release('trl')}",
                (stream.label("refused"),),
                ("a prompt is repeated by its number in the data set, and a stream has none",),
                "write dataset_streaming: false, or use trl 1.9",
            )
        elif handed is not None and is_late is not False:
            yield Finding(
                "dispatch_batches: true is refused with dataset_streaming",
                (handed.label("refused"), stream.label("", primary=False)),
                ("each process has to read the stream itself, to see the answers to its prompts",),
                "write dispatch_batches: false",
                severity=None if is_late else "warning",
            )


_LEAST: Final = 8
_SIZES: Final = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
"""The factors of one device's batch, with their defaults."""


@rule("error", "init", consumers=("trl",), reads=keys("ppo", "num_mini_batches", "whiten_rewards"))
def minibatch_refused(run: LintContext) -> Iterator[Finding]:
    """PPO's minibatches are too small for whitening, or do not divide the batch."""
    for document in run.of("ppo"):
        said = {key: _number(document, key, absent) for key, absent in _SIZES.items()}
        parts = _number(document, "num_mini_batches", 1)
        if document.is_view or parts is None or None in said.values():
            continue
        batch, accumulated = (each or 0 for each in said.values())
        # until 0.16 the batch was made of the minibatches, and divides into them
        is_divided = run.runs("trl<0.17") is False
        samples = batch * accumulated
        if samples % parts and run.runs("trl<0.17") is not True:
            for found in _uneven(document, samples, parts):
                yield found if is_divided else replace(found, severity="warning")
        elif document.value("whiten_rewards") is True:
            yield from _narrow(document, samples // parts if is_divided else samples)


def _number(document: Document, key: str, absent: int) -> int | None:
    if key in document.unknown:
        return None
    at = document.get(key)
    return absent if at is None else whole(at.value)


def _uneven(document: Document, samples: int, parts: int) -> Iterator[Finding]:
    at = document.get("num_mini_batches")
    if at is not None:
        yield Finding(
            f"{parts} minibatches of {samples} samples on a device",
            (at.label("does not divide them"), *_beside(document)),
            ("`local_batch_size` must be a multiple of `num_mini_batches`",),
            f"write a divisor of {samples}",
            sum=(Term("samples on a device", samples, ""), Term("minibatches", parts, "")),
        )


def _narrow(document: Document, samples: int) -> Iterator[Finding]:
    at = document.get("whiten_rewards")
    if at is not None and samples < _LEAST:
        yield Finding(
            f"whiten_rewards over minibatches of {samples} samples on a device",
            (at.label(f"needs {_LEAST}"), *_beside(document)),
            ("the mean and variance of so few are noise: the trainer asserts at least 8",),
            "raise per_device_train_batch_size or gradient_accumulation_steps, or turn it off",
            sum=(Term("samples of a minibatch", samples, ""), Term("least", _LEAST, "")),
        )


def _beside(document: Document) -> tuple[Label, ...]:
    found = (document.get(key) for key in _SIZES)
    return tuple(each.label("", primary=False) for each in found if each is not None)
