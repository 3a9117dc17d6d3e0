"""The openrlhf target: launch scripts with the flags of its two trainers, which run on DeepSpeed.

DeepSpeed has no configuration file: OpenRLHF's strategy builds it from the flags.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.analyses.counting import Counting, Epoch
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.start_commands import Start
from tunec.compiler.target import Cannot, Dialect, Entry, File, Json, Target
from tunec.schemas.data_paths import Record
from tunec.schemas.frozen import replace
from tunec.schemas.spec import Spec
from tunec.targets.answers import answers_alone, only_answers
from tunec.targets.deepspeed.config import DEEPSPEED
from tunec.targets.deepspeed.reader import PACKAGE as DEEPSPEED_PACKAGE
from tunec.targets.deepspeed.refusals import refusals
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.huggingface.text_layers import SAME_NAMES, layer_names
from tunec.targets.openrlhf.engine import ENGINE, SETTINGS
from tunec.targets.openrlhf.migration import CARRIES, LEAVES, UNPADDED
from tunec.targets.openrlhf.model import (
    ADAPTER,
    CHECKPOINTING,
    EVERY_LAYER,
    MODEL,
    OF_PAIRS,
    OF_TEXTS,
    QUANTIZATION,
)
from tunec.targets.openrlhf.packages import (
    PACKAGE,
    RELEASES,
    SUPPORTED,
    companions,
    installed_releases,
    ranges,
)
from tunec.targets.openrlhf.refusals import REFUSALS
from tunec.targets.openrlhf.training import BATCH, RUN, optimizer, schedule
from tunec.targets.read_only import schema_of
from tunec.targets.rows import is_supervised
from tunec.targets.scripts.command import FLAGS, Style, commander
from tunec.targets.scripts.file import (
    Check,
    checked,
    command_file,
    command_rows,
    every,
    own_script,
    started,
)
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import (
    adding_no_noise,
    averaging_tokens,
    beside_fsdp_and_rewards,
    evaluating_by_loss,
    other_releases,
    reading_formats,
    taking_the_tokenizers_template,
    writing_text,
)

SFT: Final = "openrlhf_sft.sh"
DPO: Final = "openrlhf_dpo.sh"
PROGRAMS: Final[Mapping[str, str]] = {
    SFT: "openrlhf.cli.train_sft",
    DPO: "openrlhf.cli.train_dpo",
}
"""The program of each file, by its module."""
STYLE: Final = Style(
    text=frozenset(
        {
            *("model.model_name_or_path", "ref.model_name_or_path", "data.dataset", "eval.dataset"),
            *("ckpt.output_dir", "ckpt.path", "logger.tensorboard_dir", "logger.wandb.key"),
            *("data.input_key", "data.prompt_key", "ds.lora.target_modules", "data.output_key"),
            "data.input_template",
        }
    ),
    switches=True,
    spreads=True,
)
_COMMON: Final = (*MODEL, *ADAPTER, *QUANTIZATION, *CHECKPOINTING, *BATCH, *ENGINE, *RUN)
_ROWS: Final[Mapping[str, tuple[Entry, ...]]] = {
    SFT: (*OF_TEXTS, *_COMMON, *optimizer(5e-6), *schedule(2)),
    DPO: (*OF_PAIRS, *_COMMON, *optimizer(1e-5), *schedule(1)),
}


def _check_releases(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    yield from other_releases(PACKAGE, ranges, installed_releases)(plan, dialect)
    yield from refusals(plan, dialect)


def _file(name: str, *, of_pairs: bool) -> File:
    program = PROGRAMS[name]
    schema = schema_of(f"{PACKAGE}/{program.rpartition('.')[2]}", RELEASES, PACKAGE)
    start = Entry(
        ("script",),
        (),
        lambda plan: {"script": [started(plan, program)]},
        lambda _: {},
        f"{program}: python -m",
    )
    rows = command_rows(("torchrun", "deepspeed"), lambda _: program, program, start, _ROWS[name])
    checks: tuple[Check, ...] = (checked(name, rows, FLAGS, schema), _check_releases)
    file = command_file(
        name,
        rows,
        STYLE,
        lambda document: _starts(document, program),
        every(*checks),
        schema=schema,
    )
    return replace(
        file,
        when=(lambda plan: plan.objective.kind == "dpo") if of_pairs else is_supervised,
        phrases=(EVERY_LAYER,),
        carries=(*CARRIES, *((UNPADDED,) if of_pairs else ())),
        leaves=LEAVES,
        # trainer/sft_trainer.py `fit`: each micro batch; datasets/sft_dataset.py
        defaults=answers_alone(averaging_tokens(across=False)),
    )


_SECTIONS: Final = frozenset({"data", "model", "train", "ds", "ckpt", "adam"})


def _starts(document: Json, program: str) -> bool:
    """Whether a script starts the program, by its module or file, with flags in sections."""
    if not isinstance(document, dict):
        return False
    words, flags = document.get("script", ()), document.get(FLAGS)
    path = f"{program.replace('.', '/')}.py"
    is_started = any(word == program or str(word).endswith(path) for word in words)
    return is_started and isinstance(flags, dict) and not _SECTIONS.isdisjoint(flags)


FILES: Final = (_file(SFT, of_pairs=False), _file(DPO, of_pairs=True))


# ── what no flag says ────────────────────────────────────────────────────────────────────────────

_CANNOT: Final = {
    **CANNOT,
    **beside_fsdp_and_rewards(),
    **evaluating_by_loss("OpenRLHF"),
    **adding_no_noise("OpenRLHF"),
    **taking_the_tokenizers_template("it is given the text of a template, and no file"),
    **only_answers("OpenRLHF"),
    **reading_formats(
        "its files name the column `messages`, of which every answer is learned, or texts as "
        "prompt and completion",
        "prompt-completion",
    ),
    "objective.kind": Cannot(
        "of its programs tunec plans train_sft and train_dpo: train_rm freezes the head beside "
        "adapters, and evaluates on trained data where no other is given; the models of "
        "train_ppo_ray are placed by Ray",
        True,
        ("sft", "dpo"),
    ),
    **writing_text("OpenRLHF"),
    "model.trust_remote_code": Cannot("it is on in every run"),
    "batch.accumulation": Cannot("global batch, micro batch and processes say it"),
    "schedule.warmup_steps": Cannot("it is given a share of the steps"),
    "zero.nvme_path": Cannot("nothing of it goes to NVMe", True, (None,)),
    "parallel.tensor": Cannot("no account is kept of what it splits", True, (1,)),
    "parallel.sequence": Cannot("no account is kept of sequences that are shared", True, (1,)),
    "launch.script": own_script("openrlhf"),
}
_REQUIRES: Final[Mapping[str, Any]] = {
    "parallel.engine": "deepspeed",
    "precision.tf32": False,
    "runtime.dataloader_pin_memory": True,
    "loss.path": "full",
    "optimizer.kernel": "own",
}


def _launcher(draft: Draft) -> Mapping[str, Any]:
    """DeepSpeed's launcher on one node, as in OpenRLHF's examples; torchrun on several.

    torchrun needs no list of hosts, but gives each process one thread, which slows an optimizer on
    the host.
    """
    if "devices" not in draft.groups:
        return {}
    return {"launch.launcher": "deepspeed" if draft.devices.nodes == 1 else "torchrun"}


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin what keeps joined samples apart, a reference for DPO, names of layers, a launcher."""
    packs = spec.data.packing and spec.attention is None
    pairs = {"objective.reference": "resident"} if spec.objective.dpo is not None else {}
    return {
        **({"attention.implementation": "flash_attention_2"} if packs else {}),
        **pairs,
        **layer_names(spec, draft, SAME_NAMES),
        **({} if spec.launcher else _launcher(draft)),
        **{f"zero.{slot}": value for slot, value, _ in SETTINGS if value is not None},
    }


def counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Whole micro batches of a rank's samples; an epoch's rest is accumulated into the next.

    openrlhf 0.10.4 to 0.11.2 utils/deepspeed/deepspeed.py `setup_dataloader`: drop_last of sampler
    and loader; deepspeed 0.19.1 to 0.19.6 runtime/engine.py `is_gradient_accumulation_boundary`.
    """

    def steps(epoch: Epoch, epochs: float) -> int:
        batches = epoch.rows // epoch.processes // epoch.micro
        return int(epochs * batches) // epoch.accumulation

    return Counting(f"openrlhf {dialect[PACKAGE]}", steps, "joined")


def records(plan: Plan) -> tuple[Record, ...]:
    """The records: datasets/sft_dataset.py `SFTDataset`, datasets/reward_dataset.py."""
    if plan.objective.kind == "dpo":
        return (Record(("prompt", "chosen", "rejected"), "chat"),)
    if plan.data.format == "prompt-completion":
        return (Record(("prompt", "completion"), "text"),)
    return (Record(("messages",), "chat"),)


TARGET: Final = Target(
    name=PACKAGE,
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=FILES,
    cannot=_CANNOT,
    requires=_REQUIRES,
    needs=_needs,
    check=refusing(PACKAGE, REFUSALS, compares_in_text=True),
    beside={"transformers": TRANSFORMERS, PEFT: PEFT_RELEASES, DEEPSPEED_PACKAGE: DEEPSPEED},
    companions=companions,
    starts=(Start(("bash",), SFT), Start(("bash",), DPO)),
    command=commander(STYLE),
    run_by="trl",
    counting=counting,
    records=records,
    template_key=lambda *_: "data.tokenizer_chat_template",
    verify="tunec.targets.openrlhf.verify",
)
"""The target for OpenRLHF's trainers of SFT and DPO."""
