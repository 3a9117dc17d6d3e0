"""The trl target: the one file of the script that the plan's objective names, such as `trl dpo`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Dialect, Entry, File, Target, in_every_plan, on_deepspeed
from tunec.schemas.data_paths import FORMATS, Record
from tunec.schemas.frozen import replace
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.terms import ObjectiveKind
from tunec.targets.answers import every_token
from tunec.targets.chat_template import plain_template
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, TRAINER
from tunec.targets.huggingface.card_file import card_of
from tunec.targets.huggingface.counting import counting
from tunec.targets.huggingface.datasets import CANNOT_LOAD
from tunec.targets.huggingface.leaves import LEAVES
from tunec.targets.huggingface.methods import METHODS, Method, method_of
from tunec.targets.huggingface.packages import TRANSFORMERS, TRL, TRL_RELEASES
from tunec.targets.huggingface.sft import SFT
from tunec.targets.huggingface.target import CANNOT, compute_dtype
from tunec.targets.huggingface.training import optimizer_packages
from tunec.targets.scripts.refusals import refusing
from tunec.targets.scripts.trl_rewards import rewarded_record
from tunec.targets.trainers import (
    evaluating_by_loss,
    reading_formats,
    taking_the_tokenizers_template,
)
from tunec.targets.trl.answer_marks import answers_unmarked
from tunec.targets.trl.handbook import CARRIES
from tunec.targets.trl.handbook import LEAVES as HANDBOOKS
from tunec.targets.trl.packages import companions, schema_of
from tunec.targets.trl.refusals import REFUSALS
from tunec.targets.trl.reward_rows import REWARD_ENTRIES
from tunec.targets.trl.rows import DPO_ENTRIES, GRPO_ENTRIES, SFT_ENTRIES


def _file(method: Method, entries: tuple[Entry, ...], *, shared_keys: bool = True) -> File:
    """A script's file; `shared_keys`: it may have keys of the handbook's recipes besides."""
    return File(
        name=f"{method}.yaml",
        format="yaml",
        entries=entries,
        recognise=lambda document: method_of(document) == method,
        schema=schema_of(method),
        reads_powers=True,
        carries=CARRIES if shared_keys else (),
        leaves=(*LEAVES, *HANDBOOKS) if shared_keys else LEAVES,
        names=("deepspeed",),
        when=lambda plan: plan.objective.kind == method,
    )


SFT_CONFIG: Final = replace(_file("sft", SFT_ENTRIES), when=SFT.when, defaults=every_token)
DPO_CONFIG: Final = _file("dpo", DPO_ENTRIES)
GRPO_CONFIG: Final = _file("grpo", GRPO_ENTRIES, shared_keys=False)
REWARD_CONFIG: Final = _file("reward", REWARD_ENTRIES, shared_keys=False)

CARD: Final = card_of("trl", in_every_plan)
TEMPLATE: Final = plain_template(
    lambda plan: plan.objective.kind in ("sft", "reward"), marks_answers=True
)

_KINDS: Final = ("causal-lm", "vision-language")
_UNTOUCHED: Final = Cannot("it has no effect under this objective")
_CANNOT: Final = {
    **CANNOT,
    **{
        slot: _UNTOUCHED for slot in SLOTS if slot.startswith(("objective.", "generation.", "ppo."))
    },
    "objective.kind": Cannot("none of its scripts trains a critic", True, METHODS),
    **evaluating_by_loss("TRL"),
    **CANNOT_LOAD,
    **reading_formats(
        "the trainer takes records as they are: it knows no instructions with an input, and the "
        "chat template meets speakers by the names that they have, such as human and gpt",
        "prompt-completion",
        "text",
    ),
    "data.loss_on": Cannot("before 0.19 every token of a conversation bears the loss"),
    **taking_the_tokenizers_template(
        "`trl sft` is given a template from 0.19 on, and `trl reward` from 0.24; `trl dpo` and "
        "`trl grpo` are given none"
    ),
    "generation.engine_sleeps": Cannot(
        "from 0.23 on TRL lets vLLM sleep, where it is on the devices that train", True, (False,)
    ),
    "generation.offload_training": Cannot(
        "TRL leaves weights and optimizer states on the devices while vLLM writes", True, (False,)
    ),
    "objective.reference": Cannot("the trainer takes it by itself, as beta and adapters say"),
    "generation.prompt": Cannot("from 0.28 on the data bounds the prompts"),
    "loss.path": Cannot("`trl sft` writes no file for it"),
    "model.kind": Cannot(
        "its scripts train models that write text, and reward models", True, _KINDS
    ),
}


def entry(plan: Plan, dialect: Dialect) -> tuple[str, ...]:
    """The module of a method's script; `trl sft` starts it by accelerate's launcher.

    trl 0.8.1 to 0.12.2 commands/scripts, and from 0.13 on scripts (`make_parser`, `main`).
    """
    kind = plan.objective.kind
    package = "trl.scripts" if dialect[""] >= _SCRIPTS else "trl.commands.scripts"
    return (f"{package}.{kind}", "--config", f"trl/{kind}.yaml")


_SCRIPTS: Final = Version("0.13")
"""The first release with the package."""


def _records(plan: Plan) -> tuple[Record, ...]:
    """The records that the scripts accept.

    trl 1.16.0 docs/source/dataset_formats.md; data_utils.py `maybe_convert_to_chatml`.
    """
    facts = OBJECTIVES[plan.objective.kind]
    columns = facts.columns
    if facts.generates:
        return (replace(rewarded_record(plan), renames=False),)
    if columns:
        return (Record(columns, renames=False),)
    if plan.data.format is not None:
        return (replace(FORMATS[plan.data.format], renames=False),)
    others = (
        () if plan.data.loss_on == "answers" else (FORMATS["prompt-completion"], FORMATS["text"])
    )
    every = (Record(("messages",)), Record(("conversations",)), *others)
    return tuple(replace(each, renames=False) for each in every)


def _template_key(plan: Plan, version: Version) -> str:
    """The key, in releases that put no template of their own in place of a missing one.

    trl 0.17.0 to 0.18.2 scripts/sft.py `setup_chat_format`, 0.19.1 to 0.22.2 trainer/sft_trainer.py
    `clone_chat_template`; until 0.23 scripts/dpo.py `SIMPLE_CHAT_TEMPLATE`.
    """
    first, last = {"sft": ("0.17", "0.23"), "dpo": ("0", "0.24")}.get(
        plan.objective.kind, ("0", "0")
    )
    return "" if Version(first) <= version < Version(last) else "chat_template_path"


_refusals: Final = refusing("trl", REFUSALS, compares_in_text=True)


def _check(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    yield from _refusals(plan, version)
    yield from answers_unmarked(plan, version)


def _counting(dialect: Dialect, passed: Mapping[str, Any]) -> Counting:
    """As the Trainer counts; a pair of which one answer is too long is left out.

    trl 0.24.0 to 1.16.0 trainer/reward_trainer.py `_prepare_dataset`. From 1.9 on a sample or pair
    is left out, too, whose prompt fills the sequence: sft_trainer.py, dpo_trainer.py
    `_prepare_dataset`.
    """
    drops: tuple[ObjectiveKind, ...] = ("sft", "dpo") if dialect[TRL] >= _DROPS_UNANSWERED else ()
    counts = counting(dialect, passed)
    return replace(counts, leaves_out=("reward",), leaves_out_unanswered=drops)


_DROPS_UNANSWERED: Final = Version("1.9")
"""The first release that drops what bears no loss; 1.8.0 trains on it."""


TARGET: Final = Target(
    name="trl",
    package=TRL,
    supported=TRL_RELEASES.supported,
    latest=TRL_RELEASES.latest,
    releases=TRL_RELEASES.releases,
    files=(
        SFT_CONFIG,
        DPO_CONFIG,
        GRPO_CONFIG,
        REWARD_CONFIG,
        CARD,
        TEMPLATE,
        ds_config(TRAINER, when=on_deepspeed),
    ),
    cannot=_CANNOT,
    check=_check,
    beside={"transformers": TRANSFORMERS, PACKAGE: DEEPSPEED},
    companions=companions,
    imports=optimizer_packages,
    together=compute_dtype,
    entry=entry,
    resumes="--resume_from_checkpoint={}",
    takes_fsdp=True,
    counting=_counting,
    records=_records,
    template_key=_template_key,
    verify="tunec.targets.trl.verify",
)
