"""A DPO loss that the release does not know."""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NOW: Final = frozenset(
    {
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
        *("aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"),
    }
)
_BEFORE: Final = _NOW | {"aot_pair"}
_PAIRS: Final = ("exo_pair", "nca_pair", "robust", "aot", "aot_pair", "bco_pair", "sppo_hard")
_RELEASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(_PAIRS, "trl>=0.9"),
    **dict.fromkeys(("apo_zero", "apo_down"), "trl>=0.10"),
    "discopop": "trl>=0.13",
    "sft": "trl>=0.20",
    "aot_unpaired": "trl>=0.28",
    "sigmoid_norm": "trl>=1.4",
}
"""Words that came with a release; until 0.27 `aot_unpaired` is `aot`, and `aot` is `aot_pair`."""
_KTO: Final = "kto_pair"
_REFUSED: Final = "trl>=0.9,<0.29"
"""Releases whose trainer looks for that word itself, when it is made."""
_RENAMED: Final = {"aot_pair": "aot", "kto_pair": "apo_zero", "dpo": "sigmoid", "orpo": "sigmoid"}
_AS_SIGMOID: Final = "from 0.9.4 on it is not handed on, and sigmoid is trained"
"""`preference-loss-not-computed`, of the other words."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_llamafactory(run)
    for document in run.of("dpo"):
        at = document.get("loss_type")
        if document.is_view or at is None:
            continue
        said = at.value if isinstance(at.value, list) else [at.value]
        known = _known(run)
        is_kto = _KTO in said
        lost = [each for each in said if isinstance(each, str) and each not in known]
        if lost:
            near = [
                *nearest(lost[0], known)[:1],
                *([_RENAMED[lost[0]]] if lost[0] in _RENAMED else []),
            ]
            yield Finding(
                f"{quoted(lost, 'and')} is no loss of DPO in this release",
                (at.label("Unknown loss type"),),
                ("the configuration is taken, and the first step fails",),
                f"did you mean {quoted(near[-1:])}?" if near else "write sigmoid",
                consequence="init" if is_kto and run.runs(_REFUSED) else None,
                severity="warning" if is_kto and run.runs("trl<0.9") is None else None,
            )


def _known(run: Run) -> Set[str]:
    """The words of the release, as far as somebody names it."""
    words = _NOW if run.runs("trl>=0.28") else _BEFORE
    old = {_KTO} if run.runs("trl<0.9") else set[str]()
    return old | frozenset(
        each for each in words if run.runs(_RELEASES.get(each, "trl>=0")) is not False
    )


def _of_llamafactory(run: Run) -> Iterator[Finding]:
    """A word that its own list still has, and the TRL that it asks for no longer."""
    if run.runs("llamafactory<0.9"):
        return
    for document in run.of("llamafactory"):
        at = document.get("pref_loss")
        if at is not None and at.value == "kto_pair" and document.value("stage") == "dpo":
            yield Finding(
                "pref_loss kto_pair is no loss of TRL's any more",
                (at.label("Unknown loss type"),),
                (
                    _AS_SIGMOID
                    if run.runs("llamafactory>=0.9.4")
                    else "LLaMA-Factory takes the word; the first step asks TRL for the loss",
                ),
                "write stage: kto with its own data, or pref_loss: sigmoid",
                consequence="silent" if run.runs("llamafactory>=0.9.4") else None,
            )


RULE = Rule(
    name="dpo-loss-unknown",
    severity="error",
    consequence="step",
    consumers=("trl", "llamafactory"),
    sources=(
        (
            "trl 1.16.0 trainer/dpo_trainer.py `_compute_loss`: Unknown loss type. Should be one "
            "of ...; trl 0.10.1 to 0.17.0 dpo_config.py `loss_type`; run: DPOConfig takes "
            "kto_pair and aot_pair"
        ),
        (
            "trl 0.9.6 to 0.28.0 trainer/dpo_trainer.py `__init__`: Support for kto_pair has been "
            "removed; 0.8.6, 0.9.6, 0.10.1, 0.12.2, 0.13.0, 0.19.1, 0.20.0, 0.27.2, 0.28.0, 1.3.0 "
            "and 1.4.0 `dpo_loss`, `_compute_loss`: the words"
        ),
        (
            "llamafactory 0.9.5 hparams/finetuning_args.py `pref_loss`: kto_pair among the words; "
            "train/dpo/trainer.py `compute_preference_loss`: TRL's dpo_loss; setup: trl>=0.18"
        ),
        "hiyouga/LlamaFactory#4839",
    ),
    check=_check,
)
