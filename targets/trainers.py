"""Refusals that trainers share, such as knowing one objective or evaluating only by the loss."""

from collections.abc import Callable, Iterator, Mapping

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.extra import extras
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.releases import Releases
from tunec.compiler.target import Cannot, Dialect, Json
from tunec.schemas.terms import DataFormat
from tunec.targets.rows import has_images


def supervised(trainer: str) -> Mapping[str, Cannot]:
    """The refusals of a trainer that only does SFT, with the loss from all logits at once."""
    alone = f"{trainer} trains towards given texts, and nothing else"
    logits = f"{trainer} computes all logits at once"
    answers = (slot for slot in SLOTS if slot.startswith(("objective.", "generation.", "ppo.")))
    return {
        "adapter.merge": Cannot("a script of the user's own merges, when training is done"),
        **{slot: Cannot(alone) for slot in answers},
        **evaluating_by_loss(trainer),
        "objective.kind": Cannot(alone, loses=True, harmless=("sft",)),
        "loss.path": Cannot(logits, loses=True, harmless=("full",), by=("objective.kind",)),
    }


def training_denoisers(trainer: str) -> Mapping[str, Cannot]:
    """The refusals of a program that only trains diffusion models, by its own model classes."""
    return {
        **supervised(trainer),
        "model.kind": Cannot(f"{trainer} trains diffusion models", True, ("diffusion",)),
        "model.trust_remote_code": Cannot("its model classes are its own", True, (False,)),
    }


def adding_no_noise(trainer: str) -> Mapping[str, Cannot]:
    """The refusal of a trainer that cannot add noise to embeddings."""
    reason = f"{trainer} adds no noise to embeddings"
    return {"runtime.neftune_alpha": Cannot(reason, loses=True, harmless=(None,))}


def training_plainly(trainer: str) -> Mapping[str, Cannot]:
    """The refusals of a trainer with neither noise on embeddings nor arguments of a schedule."""
    return {
        **adding_no_noise(trainer),
        "schedule.arguments": Cannot(
            f"no key gives a schedule of {trainer} more than its length and warm-up",
            loses=True,
            harmless=((),),
        ),
    }


def reading_one_part(trainer: str) -> Mapping[str, Cannot]:
    """The refusal of a trainer that takes one path of training data."""
    reason = f"{trainer} is given one path of training data"
    return {"data.more": Cannot(reason, loses=True, harmless=((),))}


def reading_formats(reason: str, *taken: DataFormat) -> Mapping[str, Cannot]:
    """The refusal of a trainer without a key for the record format; it recognises `taken`."""
    return {"data.format": Cannot(reason, loses=True, harmless=(None, *taken))}


def taking_the_tokenizers_template(reason: str) -> Mapping[str, Cannot]:
    """The refusal of a program that is given no file of a chat template."""
    return {"data.chat_template": Cannot(reason, loses=True, harmless=(None,))}


def beside_fsdp_and_rewards() -> Mapping[str, Cannot]:
    """Refusals of the slots that have no effect without FSDP and without DPO or GRPO."""
    untouched = Cannot("it has no effect under this objective")
    engine = Cannot("another engine is used")
    answers = ("objective.", "generation.", "ppo.")
    return {
        **{slot: untouched for slot in SLOTS if slot.startswith(answers)},
        **{slot: engine for slot in SLOTS if slot.startswith("fsdp.")},
    }


def writing_text(trainer: str) -> Mapping[str, Cannot]:
    """The refusals of a trainer of models that write text, some of which see, on text alone."""
    kinds = ("causal-lm", "vision-language")
    return {
        "model.kind": Cannot(f"{trainer} trains models that write text", True, kinds),
        "data.images": Cannot(f"{trainer} is written for samples of text alone"),
    }


def evaluating_by_loss(trainer: str) -> Mapping[str, Cannot]:
    """The refusals of a trainer that can only evaluate by the loss."""
    alone = f"{trainer} evaluates by the loss, and no key changes that"
    rest = (slot for slot in SLOTS if slot.startswith("evaluation."))
    return {
        **{slot: Cannot(alone) for slot in rest},
        "evaluation.predictions": Cannot(alone, loses=True, harmless=("loss",)),
    }


def other_releases(
    package: str,
    ranges: Callable[[Version], Mapping[str, Releases]],
    installed_releases: Callable[[Version], Mapping[str, str]],
    source: str | None = None,
) -> Callable[[Plan, Dialect], Iterator[Diagnostic]]:
    """A check that warns if `software` names a release that the trainer's package does not accept.

    `ranges` are the releases that a release of `package` accepts, and `installed_releases` those
    that it installs. `source` is where they are read, if that is not only the wheel's
    `Requires-Dist`.
    """
    note = source or f"`Requires-Dist` of the wheel of {package}"

    def check(_: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
        own = dialect[package]
        for name, taken in ranges(own).items():
            named = dialect.get(name)
            if named is not None and not taken.contains(named):
                yield Diagnostic(
                    "software-of-another-season",
                    "warning",
                    f"{package} {own} takes {name} {taken}, and this run has {named}",
                    notes=(note,),
                    help=f"leave {name} out of `software`, or name {installed_releases(own)[name]}",
                )

    return check


def averaging_tokens(*, across: bool) -> Callable[[Mapping[str, Json]], Mapping[str, Json]]:
    """What a trainer does that has no key for it: it averages over the tokens of all devices.

    If `across` is false, it averages over those of each device by itself.
    """
    return lambda _: {"average_tokens_across_devices": across}


def own_columns(
    is_of_pairs: Callable[[Plan], bool], reads: str, source: str
) -> Callable[[Plan, Dialect], Iterator[Diagnostic]]:
    """A check that notes the data's columns if they differ from those of TRL's trainers.

    `reads` begins the note with who reads the columns. Only pairs and images have other columns.
    """

    def check(plan: Plan, _: Dialect) -> Iterator[Diagnostic]:
        if is_of_pairs(plan):
            kind, columns = "pairs", "prompt, chosen and rejected, each a text"
        elif has_images(plan):
            kind = "samples with images"
            columns = "messages, whose texts have <image> where an image stands, and images"
        else:
            return
        message = f"{reads} {kind} from the columns {columns}"
        yield Diagnostic("data-in-other-columns", "note", message, notes=(source,))

    return check


def going_on(owner: str, *keys: str) -> Callable[[Plan], bool]:
    """Whether a program goes on from a former run's checkpoint: unless one of `keys` is passed."""
    return lambda plan: not any(each.owner == owner and each.path in keys for each in extras(plan))
