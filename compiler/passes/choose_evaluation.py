"""choose_evaluation: what is computed on the evaluation data, and the length of answers."""

from typing import Any, Final

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, slot, spec
from tunec.schemas.spec_sections import Answers

_WRITERS: Final = ("causal-lm", "vision-language", "encoder-decoder")
"""Kinds of models that transformers' `generate` runs."""
_AT_ONCE: Final = 1
"""Batches whose predictions wait on the device: each moves to the host before the next one."""


def choose_evaluation(facts: Facts, draft: Draft) -> Outcome:
    """Decide what evaluation computes: the loss alone, or logits or answers for a metric."""
    scribe = Scribe(facts)
    asked = facts.spec.evaluation
    wanted = "answers" if asked.generate else "logits" if asked.metrics else "loss"
    why = "not given: only the loss" if wanted == "loss" else "as the spec has it"
    made = scribe.say("evaluation.predictions", wanted, why, spec("evaluation"))
    if made == "answers":
        _answers(scribe, draft, asked.generate or Answers())
    else:
        _say(scribe, "no answers are generated", prompt=0, completion=0, beams=1)
    kept = None if made == "loss" else _AT_ONCE
    why = (
        "no predictions are kept"
        if kept is None
        else "the predictions of each batch go to the host"
    )
    scribe.say("evaluation.kept_batches", kept, why, slot("evaluation.predictions"))
    if made != "loss":
        _check(scribe, draft)
    return scribe.outcome()


def _answers(scribe: Scribe, draft: Draft, asked: Answers) -> None:
    sequence, apart = draft.data.sequence, draft.model.kind == "encoder-decoder"
    usual = sequence if apart else sequence // 2
    given = asked.completion is not None
    why = "as the spec has it" if given else "not given: all of the sequence, or half where it "
    why += "" if given else "holds the prompt too"
    written = scribe.say(
        "evaluation.completion", asked.completion or max(usual, 1), why, spec("evaluation.generate")
    )
    prompt = sequence if apart else max(sequence - written, 0)
    why = "what the encoder reads" if apart else "the rest of the sequence after the answer"
    scribe.say("evaluation.prompt", prompt, why, slot("data.sequence"))
    _say(scribe, "the spec's own, or the usual one", beams=asked.beams)
    if not apart and written >= sequence:
        scribe.error(
            "E0806",
            f"an answer of {written} tokens leaves no room for the prompt in a sequence of "
            f"{sequence} tokens",
            scribe.place("evaluation.completion", "evaluation.generate"),
            help="raise data.sequence, which holds both, or shorten the answer",
        )


def _check(scribe: Scribe, draft: Draft) -> None:
    at = scribe.place("evaluation.predictions", "evaluation")
    if draft.data.evaluation is None:
        scribe.error(
            "E0806",
            "there is no evaluation data to make predictions for",
            at,
            help="give data.evaluation, or remove evaluation",
        )
    kind, objective = draft.model.kind, draft.objective.kind
    if kind == "diffusion" or (scribe.values["evaluation.completion"] and kind not in _WRITERS):
        scribe.error(
            "E0806",
            f"evaluation of {'an' if kind[0] in 'aeiou' else 'a'} {kind} model is its loss: "
            "it writes no text",
            at,
            help="remove evaluation",
        )
    elif objective != "sft":
        scribe.error(
            "E0806",
            f"evaluation of {objective} compares answers by its own measures",
            at,
            help="remove evaluation",
        )


def _say(scribe: Scribe, why: str, **values: Any) -> None:
    for name, value in values.items():
        scribe.say(f"evaluation.{name}", value, why, spec("evaluation"))
