"""choose_objective: the training objective, and the answers that the model generates for it."""

from typing import Any, Final

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Option, Outcome, Scribe, as_given, slot, spec
from tunec.compiler.passes.defaults import VLLM_SHARE
from tunec.compiler.releases import parsed, row_at
from tunec.schemas.objectives import Dpo, Grpo, Ppo
from tunec.schemas.terms import BESIDE_TRAINING, GroupLoss

_USUAL_GROUP_LOSSES: Final[tuple[tuple[str, GroupLoss], ...]] = (
    ("0", "grpo"),
    ("0.17", "bnpo"),
    ("0.22", "dapo"),
)
"""Default `loss_type` of trl 0.17.0 to 1.16.0 trainer/grpo_config.py, by the first release that has
it; earlier releases have one loss."""


def choose_objective(facts: Facts, draft: Draft) -> Outcome:
    """Decide the objective; preference pairs need a reference, rewards need generated answers."""
    scribe = Scribe(facts)
    objective = facts.spec.objective
    kind = facts.pinned("objective.kind", objective.kind)
    if objective.grpo is not None or kind == "grpo":
        _grpo(scribe, draft, objective.grpo or Grpo(rewards=("accuracy_reward",)))
        _answers_in_text(scribe, draft, "GRPO")
    elif objective.ppo is not None or kind == "ppo":
        _ppo(scribe, draft, objective.ppo or Ppo())
        _answers_in_text(scribe, draft, "PPO")
    elif objective.dpo is not None or kind == "dpo":
        _dpo(scribe, draft, objective.dpo or Dpo())
        _answers_in_text(scribe, draft, "DPO")
    elif objective.reward is not None or kind == "reward":
        _reward(scribe, draft)
    else:
        _sft(scribe, as_given(facts.spec, "objective", "no objective is given"))
    return scribe.outcome()


def _sft(scribe: Scribe, given: str) -> None:
    why = f"supervised training: {given}"
    _say(scribe, why, kind="sft", loss="nll", beta=0.0, reference="none", rewards=())
    _writes_nothing(scribe, why)


def _dpo(scribe: Scribe, draft: Draft, asked: Dpo) -> None:
    why = "as the spec has it"
    _say(scribe, why, kind="dpo", loss=asked.loss, beta=asked.beta, rewards=())
    scribe.choose(
        "objective.reference",
        _references(
            adapted=draft.adapter.kind != "none", doubles=_DOUBLES in scribe.facts.versions
        ),
        "E0804",
        asked.reference,
        "objective.dpo.reference",
    )
    _writes_nothing(scribe, "the data hold pairs of answers")


def _reward(scribe: Scribe, draft: Draft) -> None:
    why = "as the spec has it"
    _say(scribe, why, kind="reward", loss="sigmoid", beta=0.0, reference="none", rewards=())
    _writes_nothing(scribe, "the data hold pairs of answers")
    architecture = scribe.facts.model.architecture
    labels = architecture.vocab if draft.model.kind == "sequence-classifier" else 0
    if labels != 1:
        has = f"one of {labels} labels" if labels else f"that of a {draft.model.kind}"
        scribe.error(
            "E0804",
            f"a reward model gives each sequence one number, and the head of this one is {has}",
            scribe.place("objective.kind", "task"),
            help="remove task, and set `objective: reward`, which brings its head",
        )
    _unpacked(scribe, draft)


_DOUBLES: Final = "openrlhf"
"""Keeps a second model even with adapters: openrlhf 0.10.4 to 0.11.2 cli/train_dpo.py `train`."""


def _references(*, adapted: bool, doubles: bool) -> list[Option]:
    """The possible references; trl 0.9.6 to 1.16.0 keeps no second model with a `peft_config`."""
    rests = (slot("adapter.kind"),)
    no_adapters = None if adapted else "there are no adapters to turn off"
    keeps_one = adapted and not doubles
    second = "with adapters, the base model is the reference" if keeps_one else None
    return [
        Option("base", "the base with its adapters off, at no cost in memory", no_adapters, rests),
        Option("resident", "a second model beside the trained one", second, rests),
        Option("precomputed", "computed once before training", None, rests),
    ]


def _grpo(scribe: Scribe, draft: Draft, asked: Grpo) -> None:
    loss = asked.loss or _usual_loss(scribe.facts.versions.get("trl"))
    _rewarded(scribe, draft, asked, loss)
    _trains_no_critic(scribe, "answers are compared within their group")


def _ppo(scribe: Scribe, draft: Draft, asked: Ppo) -> None:
    """Decide PPO, whose critic starts from given weights and is trained in full."""
    _rewarded(scribe, draft, asked, "clipped")
    model = scribe.facts.critic or scribe.facts.model
    _say(
        scribe,
        "as the spec has it",
        "ppo",
        critic=model.path,
        kl=asked.kl if scribe.facts.pinned("objective.beta", asked.beta) > 0 else "none",
        **{name: getattr(asked, name) for name in _OF_PPO},
    )
    if scribe.facts.critic is None:
        scribe.error(
            "E0804",
            "a pin alone gives PPO no critic",
            scribe.place("objective.kind", "objective"),
            help="set `objective: ppo`",
        )
    if draft.model.kind != "causal-lm":
        scribe.error(
            "E0804",
            f"the critic of PPO is planned for models of text alone; this one is "
            f"{draft.model.kind}",
            scribe.place("objective.kind", "objective"),
            help="train a model of text alone, or set `objective: {grpo: {rewards: [...]}}`",
        )


_OF_PPO: Final = ("critic_learning_rate", "gamma", "lam", "epochs", "clip", "value_clip")


def _trains_no_critic(scribe: Scribe, why: str) -> None:
    nothing = {name: 0 if name == "epochs" else 0.0 for name in _OF_PPO}
    _say(scribe, why, "ppo", critic="", kl="none", **nothing)


def _rewarded(scribe: Scribe, draft: Draft, asked: Grpo | Ppo, loss: str) -> None:
    why = "as the spec has it"
    _say(scribe, why, kind=_named(asked), loss=loss, beta=asked.beta, rewards=asked.rewards)
    own = "base" if draft.adapter.kind != "none" else "resident"
    reference = own if scribe.facts.pinned("objective.beta", asked.beta) > 0 else "none"
    told = f"beta is {asked.beta:g}" + (", and adapters can be turned off" * (reference == "base"))
    scribe.say("objective.reference", reference, told, slot("objective.beta"))
    completion = scribe.facts.pinned("generation.completion", asked.completion)
    engine = _generator(scribe, asked)
    colocated = engine in BESIDE_TRAINING
    _generation(
        scribe,
        why,
        engine=engine,
        samples=asked.samples,
        prompt=max(draft.data.sequence - completion, 0),
        completion=asked.completion,
        temperature=asked.temperature,
        device_share=(asked.device_share or VLLM_SHARE.value) if colocated else 0.0,
        engine_sleeps=bool(asked.engine_sleeps),
        offload_training=asked.offload_training,
    )
    _check_group(scribe, draft, asked, completion)


def _named(asked: Grpo | Ppo) -> str:
    """The field of a spec that holds these options."""
    return "ppo" if isinstance(asked, Ppo) else "grpo"


def _generator(scribe: Scribe, asked: Grpo | Ppo) -> Any:
    """The engine that generates answers; by default transformers."""
    return scribe.facts.pinned("generation.engine", asked.generator or "transformers")


def _usual_loss(trl: str | None) -> GroupLoss:
    """How the loss of a group is averaged by default in a release of the trainer."""
    if trl:
        return row_at(parsed(trl), _USUAL_GROUP_LOSSES)
    return _USUAL_GROUP_LOSSES[-1][1]


def _check_group(scribe: Scribe, draft: Draft, asked: Grpo | Ppo, completion: int) -> None:
    if 0 < draft.data.sequence <= completion:
        scribe.error(
            "E0804",
            f"an answer of {completion} tokens leaves no room for the prompt in a sequence of "
            f"{draft.data.sequence}",
            scribe.place("generation.completion", f"objective.{_named(asked)}"),
            help="raise data.sequence, which holds both, or shorten the answer",
        )
    _check_share(scribe, asked)
    batch = scribe.facts.pinned("batch.global", scribe.facts.spec.batch.global_)
    samples = scribe.facts.pinned("generation.samples", asked.samples)
    if samples < 1:
        scribe.error(
            "E0804",
            "a group of fewer than 2 answers leaves nothing to compare",
            "generation.samples",
            help="drop the pin, or request at least 2 answers",
        )
    elif batch is not None and batch % samples:
        scribe.error(
            "E0805",
            f"a global batch of {batch} cannot be divided into groups of {samples} answers",
            scribe.place("batch.global", "batch.global"),
            help=f"use a multiple of {samples}",
        )


def _check_share(scribe: Scribe, asked: Grpo | Ppo) -> None:
    """Check the fields that concern a generation engine on the training devices."""
    given = {
        "device_share": asked.device_share is not None,
        "engine_sleeps": bool(asked.engine_sleeps),
        "offload_training": asked.offload_training,
    }
    engine = _generator(scribe, asked)
    for name in (name for name, is_given in given.items() if is_given):
        if engine not in BESIDE_TRAINING:
            scribe.error(
                "E0804",
                f"{name} does not apply to {engine}",
                f"objective.{_named(asked)}.{name}",
                help=f"remove {name}, or use vllm_colocate",
            )


def _answers_in_text(scribe: Scribe, draft: Draft, name: str) -> None:
    """Check what the accounts and the trainers' files support: text alone, without packing."""
    if draft.model.kind not in ("causal-lm", "vision-language"):
        scribe.error(
            "E0804",
            f"{name} is supported only for models that write text; this one is {draft.model.kind}",
            scribe.place("objective.kind", "objective"),
            help="remove objective, or train a model of text alone",
        )
    elif draft.data.images:
        scribe.error(
            "E0804",
            f"{name} is supported only for samples of text alone, and these have images",
            scribe.place("data.images", "objective"),
            help="`--set data.images.per_sample=0`, or remove objective",
        )
    _unpacked(scribe, draft)


def _unpacked(scribe: Scribe, draft: Draft) -> None:
    if draft.data.packing:
        scribe.error(
            "E0804",
            "answers that are compared cannot be packed into one sequence",
            scribe.place("data.packing", "data.packing"),
            help="remove data.packing",
        )


def _say(scribe: Scribe, why: str, group: str = "objective", /, **values: Any) -> None:
    for name, value in values.items():
        scribe.say(f"{group}.{name}", value, why, spec("objective"))


def _writes_nothing(scribe: Scribe, why: str) -> None:
    _trains_no_critic(scribe, why)
    nothing = {"samples": 0, "prompt": 0, "completion": 0, "temperature": 0.0, "device_share": 0.0}
    _generation(scribe, why, engine="none", **nothing, engine_sleeps=False, offload_training=False)


def _generation(scribe: Scribe, why: str, **values: Any) -> None:
    _say(scribe, why, "generation", **values)
