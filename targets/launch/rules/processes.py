"""The number of processes and the number of devices."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.launch import (
    batch_of,
    count,
    flags,
    launches,
    listed,
    variable,
    variables,
)
from tunec.compiler.lints.rule import Consequence, Finding, rule
from tunec.targets.launch.rules.slurm import given_to


@rule(
    "error",
    "init",
    consumers=("accelerate", "torch", "deepspeed"),
    reads=("slot:parallel.world",),
    hardware=True,
)
def more_processes_than_devices(run: LintContext) -> Iterator[Finding]:
    """More processes are started than the hardware has devices."""
    cluster = run.environment.cluster
    if cluster is None:
        return
    for said in run.definitions("parallel.world"):
        place = run.place(said)
        if said.rank == Rank.OBSERVED and place and said.value > cluster.device_count:
            yield Finding(
                f"{said.value} processes, but {cluster.name} has {cluster.device_count} devices",
                (_number(place).label("processes"),),
                (
                    "each process takes a device of its own: the others find none, or share one",
                    "NCCL refuses a device that two processes hold",
                ),
                f"start {cluster.device_count}",
            )


def _number(place: Place) -> Place:
    """The place of the number of processes, if accelerate's file also counts machines."""
    both = place.document.get("num_processes") if place.path == "num_machines" else None
    return place if both is None else both


@rule(
    "error", "parse", consumers=("accelerate",), reads=("accelerate:gpu_ids", *flags("multi_gpu"))
)
def one_device_for_multi_gpu(run: LintContext) -> Iterator[Finding]:
    """accelerate is configured for several devices and given one."""
    for document in run.of("accelerate"):
        kind, chosen = document.get("distributed_type"), document.get("gpu_ids")
        nodes = count(document.get("num_machines")) or 1
        if kind is None or chosen is None or kind.value != "MULTI_GPU" or nodes > 1:
            continue
        if _is_one(chosen):
            yield Finding(
                f"MULTI_GPU needs more than gpu_ids {chosen.value}",
                (chosen.label("one device"), kind.label("", primary=False)),
                ("accelerate: Less than two GPU ids were configured",),
                "set distributed_type to NO, or list more devices",
            )
    for document in launches(run, "accelerate"):
        flag, processes = document.get("flags.multi_gpu"), document.get("processes")
        listed_one = document.get("flags.gpu_ids")
        if flag is not None and listed_one is not None and _is_one(listed_one):
            yield Finding(
                f"--multi_gpu needs more than --gpu_ids {listed_one.value}",
                (listed_one.label("one device"), flag.key_label("", primary=False)),
                ("accelerate: Less than two GPU ids were configured",),
                "leave --multi_gpu out, or list more devices",
            )
        if flag is not None and processes is not None and count(processes) == 1:
            yield Finding(
                "--multi_gpu needs more than --num_processes 1",
                (processes.label("one process"), flag.key_label("", primary=False)),
                ("accelerate: You need to use at least 2 processes to use `--multi_gpu`",),
                "leave --multi_gpu out",
            )


def _is_one(place: Place) -> bool:
    """Whether exactly one device is listed."""
    names = listed(place)
    return str(place.value) != "all" and names is not None and len(names) == 1


@rule(
    "warning",
    "slow",
    consumers=("transformers", "llamafactory", "trl"),
    reads=("launch:launcher",),
    hardware=True,
)
def several_devices_in_one_process(run: LintContext) -> Iterator[Finding]:
    """One process is started and sees several devices."""
    for document in launches(run, "python"):
        seen, place = _seen(run, document), document.get("launcher")
        if seen is None or seen < 2 or place is None:
            continue
        trainers = [each for each in run.of("trainer") if _starts(document, each, run)]
        if not trainers or _is_placed(trainers):
            continue
        if _RANKED.search(document.text):
            continue  # the script says itself which process each is
        what, note, when = _what(run, document)
        batch = batch_of(run, document)
        visible = variable(document, "CUDA_VISIBLE_DEVICES")
        if visible is None and batch is not None:
            visible = (given_to(batch) or (0, None))[1]
        yield Finding(
            f"one process sees {seen} devices: {what}",
            (place.label("starts one process"), *also(visible)),
            (note,),
            f"start it with torchrun --nproc_per_node {seen}, or make one device visible",
            consequence=when,
            severity="error" if when in ("parse", "init") else None,
        )


_RANKED: Final = re.compile(r"\bRANK=\$\{?(?:SLURM_PROCID|OMPI_COMM_WORLD_RANK|PMI_RANK)\b")


def _starts(launcher: Document, trainer: Document, run: LintContext) -> bool:
    """Whether a command starts a trainer by its flags, or by the GLM-4 file that it names."""
    if trainer.name == launcher.name:
        at, flags = launcher.get("launcher"), [each.span.line for each in trainer.found.values()]
        starts = [each.span.line for each in run.each("launch", "launcher")]
        before = [line for line in starts if line <= min(flags, default=0)]
        return at is None or not before or at.span.line == max(before)
    words = launcher.value("script")
    is_named = isinstance(words, list) and PurePath(trainer.name).name in map(str, words)
    return is_named and trainer.is_view and not trainer.is_partial


def _seen(run: LintContext, document: Document) -> int | None:
    """The number of devices that the process sees; None: unknown."""
    names = listed(variable(document, "CUDA_VISIBLE_DEVICES"))
    if names is not None:
        return len(names)
    batch = batch_of(run, document)
    given = None if batch is None else given_to(batch)
    if batch is not None and given is not None:
        tasks = [count(batch.get(key)) for key in ("ntasks_per_node", "ntasks")]
        return given[0] if all(each in (None, 1) for each in tasks) else None
    cluster = run.environment.cluster
    return max(n.device_count for n in cluster.nodes) if cluster else None


def _is_placed(trainers: list[Document]) -> bool:
    """Whether a device map places the model, which is then not replicated."""
    keys = ("device_map", "use_cpu", "no_cuda", "load_in_8bit", "load_in_4bit")
    return any(each.value(key) or key in each.unknown for each in trainers for key in keys)


def _what(run: LintContext, document: Document) -> tuple[str, str, Consequence]:
    if any(each.kind == "llamafactory" and each.name == document.name for each in run.documents):
        note = "LLaMA-Factory: Please launch distributed training with llamafactory-cli or torchrun"
        return "LLaMA-Factory refuses it", note, "parse"
    if run.runs("trl>=1.15") and any(e.name == document.name for e in run.of(*TRL)):
        note = "does not support nn.DataParallel, which Trainer uses when several GPUs are visible"
        return "TRL refuses it", f"TRL: {note}", "init"
    if run.of("deepspeed"):
        return "DeepSpeed uses one", "the others are idle", "slow"
    note = (
        "DataParallel copies the model to each device in every step and gathers all outputs on "
        "the first; the batch is per_device_train_batch_size for each of them"
    )
    return "the Trainer uses DataParallel", note, "slow"


@rule(
    "error", "init", consumers=("accelerate", "torch", "deepspeed"), reads=("slot:parallel.world",)
)
def world_size_differs(run: LintContext) -> Iterator[Finding]:
    """Files, or a file and --world-size, count processes differently."""
    winner = run.world
    if winner is None:
        return
    for other in run.definitions("parallel.world"):
        place = run.place(other)
        if other.rank != Rank.OBSERVED or other.value == winner.value or place is None:
            continue
        first = run.place(winner)
        if first is not None and (_is_another_command(first, place) or _is_unread(first, place)):
            continue
        if first is not None and _overrides(place, first):
            yield _differs((first, winner), (place, other), is_chosen=True)
        else:
            is_chosen = first is not None and _overrides(first, place)
            yield _differs((place, other), (first, winner), is_chosen=is_chosen)


def _differs(
    here: tuple[Place, Definition], by: tuple[Place | None, Definition], *, is_chosen: bool
) -> Finding:
    """The finding for two numbers; `is_chosen`: a flag that overrides the other is used."""
    place, other = here
    first, winner = by
    return Finding(
        f"the run has {other.value} processes here, and {winner.value} by {winner.author}",
        (
            place.label(f"{other.value} processes"),
            *([first.label(f"{winner.value} processes", primary=False)] if first else []),
        ),
        ("a flag of the launcher overrides its file",) if is_chosen else (),
        "write the same number in both",
        severity="note" if is_chosen else None,
        consequence="silent" if is_chosen else None,
    )


def _is_another_command(first: Place, place: Place) -> bool:
    """Whether one script starts both, as two runs."""
    both = first.document, place.document
    return all(each.kind == "launch" for each in both) and both[0].name == both[1].name


def _is_unread(first: Place, place: Place) -> bool:
    """Whether one is in accelerate's file, and the other of a launcher that does not read it."""
    kinds = {each.document.kind: each.document for each in (first, place)}
    launch = kinds.get("launch")
    is_another = launch is not None and launch.value("launcher") in ("torchrun", "deepspeed")
    return is_another and "accelerate" in kinds


def _overrides(flag: Place, place: Place) -> bool:
    """Whether a flag of accelerate's launcher overrides a number in its file."""
    launch = flag.document
    is_launch = launch.kind == "launch" and launch.value("launcher") == "accelerate"
    return is_launch and place.document.kind == "accelerate"


_RANKS: Final = ("RANK", "LOCAL_RANK")
_TOOLS: Final = re.compile(
    r"(?:\A|[/_.-])(?:tools|merge|convert|split|preprocess|export)(?:[/_.-]|\Z)"
)


@rule("error", "silent", consumers=("torch", "accelerate"), reads=variables("WORLD_SIZE"))
def world_without_launcher(run: LintContext) -> Iterator[Finding]:
    """A script sets WORLD_SIZE, and starts one process without a rank."""
    for document in launches(run, "python"):
        at = variable(document, "WORLD_SIZE")
        world = count(at)
        if at is None or world is None or world < 2 or _is_tool(document):
            continue
        ranks = [f"environment.{name}" for name in _RANKS]
        if any(document.get(key) is not None or key in document.unknown for key in ranks):
            continue
        yield Finding(
            f"WORLD_SIZE is {world}, and python starts one process without a rank",
            (at.label("nothing starts the others"),),
            (
                (
                    "without LOCAL_RANK accelerate and transformers train alone on one device; a "
                    "script that asks torch for its group waits for the other processes"
                ),
            ),
            f"start it with torchrun --nproc_per_node {world}, which sets all of them",
        )


def _is_tool(document: Document) -> bool:
    """Whether the started program is a tool, which may read the variable for its output only.

    microsoft/Megatron-DeepSpeed tools/merge_mp_partitions.py reads WORLD_SIZE so.
    """
    words = document.value("script")
    return isinstance(words, list) and bool(words) and _TOOLS.search(str(words[0])) is not None
