"""Settings of preference training."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, also
from tunec.compiler.lints.facts.training_loop import PREFERENCES, preferences, real, shared, whole
from tunec.compiler.lints.rule import Finding, keys, rule

_READ: Final = ("sigmoid", "robust", "exo_pair", "sigmoid_norm", "aot", "aot_unpaired", "aot_pair")


@rule(
    "error",
    "init",
    consumers=("trl", "llamafactory"),
    reads=("dpo:loss_type", "dpo:label_smoothing", "llamafactory:dpo_label_smoothing"),
)
def label_smoothing_unfit(run: LintContext) -> Iterator[Finding]:
    """Label smoothing that the preference loss refuses, requires or ignores."""
    for document, name in preferences(run):
        if name == "dpo" and document.kind == "dpo":
            yield from _of_trl(run, document)
        elif name in ("dpo", "orpo", "simpo") and document.kind == "llamafactory":
            yield from _of_factory(document)


def _of_trl(run: LintContext, document: Document) -> Iterator[Finding]:
    if document.hides("loss_type", "label_smoothing"):
        return
    loss, at = document.get("loss_type"), document.get("label_smoothing")
    said = loss.value if loss is not None else "sigmoid"
    losses = [str(each) for each in (said if isinstance(said, list) else [said])]
    share = real(at.value) if at is not None else 0.0
    if share is None:
        return
    is_exo = "exo_pair" in losses and share == 0 and loss is not None
    if loss is not None and is_exo and run.runs("trl<1.3"):
        return  # 0.001 is used then
    if loss is not None and is_exo:
        yield Finding(
            "exo_pair needs a label_smoothing above 0",
            (loss.label("divides by it"), *also(at)),
            (),
            "write label_smoothing: 0.001",
            severity=None if run.runs("trl>=1.3") else "warning",
        )
    elif at is not None and share > 0 and not set(losses) & _read_by(run):
        yield Finding(
            f"label_smoothing does nothing for {', '.join(losses)}",
            (at.label("not used"), *also(loss)),
            (),
            "remove it",
            severity="warning",
            consequence="silent",
        )
    elif (
        at is not None
        and share >= 0.5
        and "robust" in losses
        and run.runs("trl>=0.29") is not False
    ):
        yield Finding(
            f"label_smoothing {share:g} is refused with the loss robust",
            (at.label("from 0 to below 0.5"), *also(loss)),
            ("it divides by 1 - 2 x label_smoothing",),
            "write 0.1",
            severity=None if run.runs("trl>=0.29") else "warning",
        )
    elif at is not None and share >= 0.5:
        yield Finding(
            f"label_smoothing {share:g} assumes that more than half of the preferences are wrong",
            (at.label("from 0 to below 0.5"),),
            (),
            "write 0.1 or less",
            severity="warning",
            consequence="silent",
        )


def _read_by(run: LintContext) -> set[str]:
    """The losses that read it.

    trl 0.26.2 trainer/dpo_trainer.py includes sigmoid, 0.29.0 to 1.16.0 do not.
    """
    return set(_READ) - ({"sigmoid"} if run.runs("trl>=0.29") else set())


def _of_factory(document: Document) -> Iterator[Finding]:
    at, loss = document.get("dpo_label_smoothing"), document.get("pref_loss")
    share = real(at.value) if at is not None else None
    if at is None or share is None or share <= 1e-6 or loss is None or loss.value == "sigmoid":
        return
    yield Finding(
        f"dpo_label_smoothing is refused with pref_loss {loss.value}",
        (at.label("only for sigmoid"), loss.label("", primary=False)),
        (),
        "remove it, or write pref_loss: sigmoid",
        consequence="parse",
    )


@rule(
    "error",
    "parse",
    consumers=("trl>=1.3", "axolotl>=0.19", "ms-swift>=4"),
    reads=("dpo:loss_weights", "axolotl:dpo_loss_weights", "ms-swift:loss_weights"),
)
def loss_weights_differ(run: LintContext) -> Iterator[Finding]:
    """DPO mixes several losses, and the number of weights differs."""
    for document, name in (*preferences(run), *_of_swift(run)):
        prefix = "dpo_" if document.kind == "axolotl" else ""
        weights, losses = document.get(f"{prefix}loss_weights"), document.get(f"{prefix}loss_type")
        if prefix and run.runs("axolotl>=0.19") is False:
            continue
        if document.hides(f"{prefix}loss_type"):
            continue
        if name != "dpo" or weights is None or not isinstance(weights.value, list):
            continue
        count = len(losses.value) if losses is not None and isinstance(losses.value, list) else 1
        if len(weights.value) != count:
            yield Finding(
                f"TRL needs a weight for each of {count} losses, not {len(weights.value)}",
                (weights.label("one for each loss"), *also(losses)),
                (),
                f"write {count} weights",
            )


def _of_swift(run: LintContext) -> Iterator[tuple[Document, str]]:
    """Files of ms-swift that train by DPO and name a loss; without one, weights are not checked."""
    files = (each for each in run.of("ms-swift") if not each.is_view)
    return ((each, "dpo") for each in files if where(each, "rlhf_type=dpo & loss_type"))


_SHARES: Final = ("lmbda", "beta")
_VOCABULARIES: Final = (
    (re.compile(r"/qwen2(\.5)?-(coder-|math-)?(0\.5|1\.5|3)b"), 151936),
    (re.compile(r"/qwen2(\.5)?-(coder-|math-)?(7|14|32|72)b"), 152064),
    (re.compile(r"/qwen3-"), 151936),
    (re.compile(r"/(meta-)?llama-3"), 128256),
    (re.compile(r"/llama-2-"), 32000),
    (re.compile(r"/mistral-7b-(instruct-)?v0\.[12]"), 32000),
    (re.compile(r"/mistral-7b-(instruct-)?v0\.3"), 32768),
    (re.compile(r"/gemma-2-"), 256000),
)
"""`vocab_size` of the config.json of each repository; huggingface/trl#2215 names Qwen2.5's."""


@rule(
    "error", "init", consumers=("trl",), reads=keys("gkd", *_SHARES, "teacher_model_name_or_path")
)
def distillation_refused(run: LintContext) -> Iterator[Finding]:
    """A share outside of 0 to 1, or a teacher with another vocabulary, which GKD refuses."""
    for document in run.of("gkd"):
        if document.is_view:
            continue
        for key in _SHARES:
            at = document.get(key)
            share = real(at.value) if at is not None else None
            if at is not None and share is not None and not 0 <= share <= 1:
                yield Finding(
                    f"{key} must be between 0 and 1, and is {at.value}",
                    (at.label("refused"),),
                    (f"{key} must be in the range [0.0, 1.0]",),
                    "write 0.5",
                    consequence="parse",
                )
        yield from _vocabularies(document)


def _vocabularies(document: Document) -> Iterator[Finding]:
    student, teacher = (
        document.get(key) for key in ("model_name_or_path", "teacher_model_name_or_path")
    )
    if student is None or teacher is None:
        return
    ours, theirs = (_vocabulary(each.value) for each in (student, teacher))
    if ours is not None and theirs is not None and ours != theirs:
        yield Finding(
            f"a student of {ours} tokens and a teacher of {theirs}",
            (teacher.label("another vocabulary"), student.label("", primary=False)),
            ("the loss compares the probabilities of every token of one vocabulary",),
            "take a teacher with the same vocab_size, or GOLD",
        )


def _vocabulary(name: object) -> int | None:
    text = f"/{str(name).lower().rpartition('/')[2]}"
    return next((size for pattern, size in _VOCABULARIES if pattern.search(text)), None)


@rule("error", "init", consumers=("trl",), reads=("kto:per_device_train_batch_size", "axolotl:rl"))
def kto_batch_of_one(run: LintContext) -> Iterator[Finding]:
    """KTO has one sample at a time, from which it cannot estimate its KL term."""
    for document, name in preferences(run):
        at = shared(document, "per_device_train_batch_size")
        if name != "kto" or at is None or at.value != 1 or document.kind == "llamafactory":
            continue  # LLaMA-Factory pairs samples with others' answers before it makes batches
        yield Finding(
            "KTO gets one sample on a device at a time, and compares several",
            (at.label("needs 2 or more"),),
            ("the KL term comes from other samples of the batch; accumulation does not count",),
            "write 2 or more, and halve the accumulation",
            severity=None if _is_asked(run, document) else "warning",
            consequence=None if _is_asked(run, document) else "silent",
        )


def _is_asked(run: LintContext, document: Document) -> bool:
    """Whether the trainer checks it: TRL's does not from 0.26 to 1.7."""
    is_trl = document.kind == "kto" and not run.runs("trl>=0.26,<1.8")
    return document.kind == "axolotl" or is_trl


_MOST_FULL: Final = 1e-5
_MOST_LORA: Final = 1e-4
_LARGE: Final = 1_000_000_000
"""Parameters; smaller models are trained at higher rates, by their makers too."""
_SMALL_BY_NAME: Final = re.compile(r"(?i)(?<![a-z0-9])\d+m(?![a-z0-9])")
"""Names with millions of parameters: `SmolLM2-135M`."""


@rule("note", "silent", consumers=("trl",), reads=PREFERENCES)
def preference_rate_as_for_sft(run: LintContext) -> Iterator[Finding]:
    """A preference method has a learning rate that is usual for supervised training."""
    for document, name in preferences(run):
        if name not in ("dpo", "kto", "orpo", "simpo") or not _is_large(run):
            continue
        at = document.get("learning_rate")
        rate = real(at.value) if at is not None else None
        kind = run.value("adapter.kind")
        limit = _MOST_LORA if kind == "lora" else _MOST_FULL
        if at is None or rate is None or kind is None or rate <= limit:
            continue
        yield Finding(
            f"learning rate {rate:g} is high for {name.upper()}",
            (at.label("usual for supervised training"),),
            (
                "DPO's authors and TRL use 5e-7 to 5e-6 on whole models, ten times that with LoRA",
                "too high a rate lowers both log-probabilities, and answers degrade",
            ),
            f"write {5e-7 if limit == _MOST_FULL else 5e-6:g}",
        )


def _is_large(run: LintContext) -> bool:
    """Whether the model is large enough for the known rates; an unknown model is."""
    if run.model is None:
        return _SMALL_BY_NAME.search(run.model_name or "") is None
    return run.model.architecture.parameters >= _LARGE


_CUT_AT_THE_END: Final = "trl<0.14"


@rule("warning", "silent", consumers=("trl<0.29",), reads=("dpo:max_prompt_length",))
def prompt_fills_the_sequence(run: LintContext) -> Iterator[Finding]:
    """Prompts may be as long as the whole sequence."""
    for document, name in preferences(run):
        prompt, total = document.get("max_prompt_length"), document.get("max_length")
        if name != "dpo" or document.kind != "dpo" or prompt is None:
            continue
        most = total.value if total is not None else 1024
        if whole(prompt.value) is None or whole(most) is None or prompt.value < most:
            continue
        if run.runs(_CUT_AT_THE_END) is False and document.value("truncation_mode") != "keep_start":
            continue  # the end is kept, with the answers, and the prompt is cut
        yield Finding(
            f"max_prompt_length {prompt.value} leaves no room for completions in max_length {most}",
            (prompt.label("the prompt alone"), *also(total, "prompt and completion")),
            ("completions are cut to nothing: chosen and rejected become equal",),
            f"write max_prompt_length: {most // 2}",
        )
