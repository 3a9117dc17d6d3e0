"""Numbers and choices of preference losses."""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import GROUPED, grouped, preferences, real, trl
from tunec.compiler.lints.rule import Finding, keys, rule

_KEYS: Final = {
    "dpo": ("beta",),
    "kto": ("beta",),
    "llamafactory": ("pref_beta",),
    "axolotl": ("rl_beta", "dpo_beta"),
}
_METHODS: Final = ("dpo", "kto", "orpo", "simpo")


@rule(
    "error",
    "silent",
    consumers=("trl", "llamafactory", "axolotl"),
    reads=tuple(f"{kind}:{key}" for kind, names in _KEYS.items() for key in names),
)
def beta_of_zero(run: LintContext) -> Iterator[Finding]:
    """A preference loss whose beta is zero or less: nothing is learned, or the opposite."""
    for document, name in preferences(run):
        if name not in _METHODS:
            continue
        for key in _KEYS.get(document.kind, ()):
            at = document.get(key)
            beta = real(at.value) if at is not None else None
            if at is not None and beta is not None and beta <= 0:
                yield _beta_finding(at, beta, name)


def _beta_finding(at: Place, beta: float, name: str) -> Finding:
    is_zero = beta == 0
    return Finding(
        f"{at.path} {at.value}: {name.upper()} "
        + ("has no gradient" if is_zero else "prefers what was rejected"),
        (at.label("multiplies the difference of the pair"),),
        (
            "the loss is a function of beta times the difference of the log-ratios",
            *(("some readers treat 0 as absent, and use their default",) if is_zero else ()),
        ),
        "write 0.1",
    )


_EPSILON = 0.2
"""trl 0.17.0 to 1.16.0 grpo_config.py `epsilon`."""


@rule(
    "warning",
    "silent",
    consumers=("trl",),
    reads=grouped("epsilon_high", "delta"),
    unless="declared",
)
def clip_bounds_crossed(run: LintContext) -> Iterator[Finding]:
    """The ratio of a policy's update is clipped at a bound on the wrong side."""
    for document, method in preferences(run):
        if method in GROUPED:
            yield from _clip_bounds(document)


def _clip_bounds(document: Document) -> Iterator[Finding]:
    low_at, high_at = trl(document, "epsilon"), trl(document, "epsilon_high")
    low = real(low_at.value) if low_at is not None else _EPSILON
    high = real(high_at.value) if high_at is not None else None
    if high_at is not None and low is not None and high is not None and high < low:
        yield _clip_finding(
            high_at,
            low_at,
            f"epsilon_high {high:g} is below epsilon {low:g}",
            "raising a probability is clipped sooner than lowering it; DAPO uses 0.28 and 0.2",
            "write 0.28, or remove epsilon_high",
        )
    top_at = trl(document, "delta")
    top, above = real(top_at.value) if top_at else None, high if high is not None else low
    if top_at is not None and top is not None and above is not None and top <= 1 + above:
        yield _clip_finding(
            top_at,
            high_at or low_at,
            f"delta {top:g} is not above 1 + {above:g}",
            "the second bound of the two-sided loss lies beyond the first",
            "write 4.0, or remove delta",
        )


def _clip_finding(at: Place, beside: Place | None, what: str, why: str, mended: str) -> Finding:
    return Finding(what, (at.label("clips first"), *also(beside)), (why,), mended)


_LOSSES: Final = ("sigmoid", "hinge", "ipo", "simpo", "alphapo")
_SMOOTHED: Final = ("sigmoid", "simpo", "alphapo")
_MARGIN: Final = ("simpo", "alphapo")
_MARKS: Final = ("cpo_alpha", "simpo_gamma")


@rule("warning", "silent", consumers=("trl",), reads=keys("hf", *_MARKS))
def cpo_loss_unfit(run: LintContext) -> Iterator[Finding]:
    """Settings of TRL's CPO that its loss does not read, or that turn it into another loss."""
    for document in run.of("hf"):
        is_told = not document.is_view and not document.hides("loss_type", "cpo_alpha")
        if is_told and any(document.get(key) for key in _MARKS):
            yield from _of_cpo(document)


def _of_cpo(document: Document) -> Iterator[Finding]:
    loss, gamma = document.get("loss_type"), document.get("simpo_gamma")
    word = loss.value if loss is not None else "sigmoid"
    if loss is not None and word not in _LOSSES:
        yield Finding(
            f"loss_type cannot be {word} in CPO",
            (loss.label("not known"),),
            ("it is looked up at the first step",),
            "write sigmoid, hinge, ipo or simpo",
            severity="error",
            consequence="step",
        )
    elif gamma is not None and word not in _MARGIN:
        yield Finding(
            f"simpo_gamma does nothing for the loss {word}",
            (gamma.label("not read"), *also(loss)),
            (),
            "write loss_type: simpo, or remove it",
        )
    elif loss is not None and word == "simpo":
        yield from _with_likelihood(document)
    smoothing = document.get("label_smoothing")
    share = real(smoothing.value) if smoothing is not None else None
    if smoothing is not None and share and word in _LOSSES and word not in _SMOOTHED:
        yield Finding(
            f"label_smoothing does nothing for the loss {word}",
            (smoothing.label("not read"),),
            (),
            "remove it",
        )


def _with_likelihood(document: Document) -> Iterator[Finding]:
    """CPO adds the likelihood of the chosen answer, which SimPO does not have."""
    loss, alpha = document.get("loss_type"), document.get("cpo_alpha")
    at = alpha or loss
    share = real(alpha.value) if alpha is not None else 1.0
    if at is None or not share:
        return
    yield Finding(
        f"loss_type simpo with cpo_alpha {share:g} is CPO-SimPO, and not SimPO",
        (at.label("adds the likelihood of the chosen answer"),),
        ("cpo_alpha is 1.0 by default; SimPO has no such term",),
        "write cpo_alpha: 0.0",
        severity="warning" if alpha is None else "note",
    )


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
"""The releases since which a loss exists; until 0.27 `aot_unpaired` is `aot`, and `aot` is
`aot_pair`."""
_KTO: Final = "kto_pair"
_REFUSED: Final = "trl>=0.9,<0.29"
"""Releases whose trainer checks that value itself in its constructor."""
_RENAMED: Final = {"aot_pair": "aot", "kto_pair": "apo_zero", "dpo": "sigmoid", "orpo": "sigmoid"}
_AS_SIGMOID: Final = "since 0.9.4 it is not passed on, and the loss is sigmoid"
"""The note of `preference-loss-not-computed` on other losses."""


@rule(
    "error",
    "step",
    consumers=("trl", "llamafactory"),
    reads=("dpo:loss_type", "llamafactory:pref_loss"),
    unless="quoted",
)
def dpo_loss_unknown(run: LintContext) -> Iterator[Finding]:
    """A DPO loss that the release does not have."""
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
                ("the configuration is accepted, and the first step fails",),
                f"did you mean {quoted(near[-1:])}?" if near else "write sigmoid",
                consequence="init" if is_kto and run.runs(_REFUSED) else None,
                severity="warning" if is_kto and run.runs("trl<0.9") is None else None,
            )


def _known(run: LintContext) -> Set[str]:
    """The losses of the release, or of all known ones if it is unknown."""
    words = _NOW if run.runs("trl>=0.28") else _BEFORE
    old = {_KTO} if run.runs("trl<0.9") else set[str]()
    return old | frozenset(
        each for each in words if run.runs(_RELEASES.get(each, "trl>=0")) is not False
    )


def _of_llamafactory(run: LintContext) -> Iterator[Finding]:
    """A loss that LLaMA-Factory still lists, and its release of TRL no longer has."""
    if run.runs("llamafactory<0.9"):
        return
    for document in run.of("llamafactory"):
        at = document.get("pref_loss")
        if at is not None and at.value == "kto_pair" and document.value("stage") == "dpo":
            yield Finding(
                "pref_loss kto_pair is no longer a loss of TRL",
                (at.label("Unknown loss type"),),
                (
                    _AS_SIGMOID
                    if run.runs("llamafactory>=0.9.4")
                    else "LLaMA-Factory accepts the word; TRL refuses it at the first step",
                ),
                "write stage: kto with its own data, or pref_loss: sigmoid",
                consequence="silent" if run.runs("llamafactory>=0.9.4") else None,
            )
