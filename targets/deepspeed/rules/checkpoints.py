"""Rules about resuming from ZeRO checkpoints."""

from collections.abc import Iterator

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.facts.training_loop import engine_of
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule

resume_from_rounded_weights = rows(
    "resume-from-rounded-weights",
    "warning",
    "resume",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:zero_optimization.load_from_fp32_weights=false",
            "load_from_fp32_weights false: a resumed run starts from rounded weights",
            label="16-bit copies are taken",
            why="the fp32 copies in the checkpoint are ignored",
            help="remove it, unless the checkpoint has no optimizer states",
            mend=Mend("unsafe", remove=True),
            effective=("deepspeed:zero_optimization.stage=1|2|3",),
        ),
    ),
)


_UNIVERSAL = "checkpoint.load_universal"


@rule("error", "resume", consumers=("deepspeed",), reads=("trainer:resume_from_checkpoint",))
def resume_of_another_run(run: LintContext) -> Iterator[Finding]:
    """Training resumes from a checkpoint of a run that was sharded differently."""
    place = run.said("trainer", "resume_from_checkpoint")
    for folder in run.of("checkpoint"):
        if place is None or not place.value:
            continue
        is_own = folder.value("engine") == "deepspeed"
        if is_own and engine_of(run) == "DeepSpeed":
            yield from _split(run, folder, place)
        elif engine_of(run) == "DeepSpeed":
            yield Finding(
                f"{folder.name} holds no checkpoint of DeepSpeed",
                (place.label("no folder global_step* in it"), *also(stage_of(run).place)),
                ("Can't find a valid checkpoint: the run that wrote it did not use DeepSpeed",),
                "resume without DeepSpeed, or start from its weights: model_name_or_path",
            )
        elif is_own:
            yield Finding(
                f"{folder.name} was written by DeepSpeed, and this run does not use it",
                (place.label("its optimizer states are not read"),),
                ("the trainer looks for optimizer.pt, finds none, and continues from the weights",),
                "resume with the ds_config of that run",
                severity="warning",
                consequence="silent",
                certain=_is_without_engine(run),
            )


def _is_without_engine(run: LintContext) -> bool:
    """Whether the run is started without a launcher that can turn DeepSpeed on by another file."""
    started = {each.value("launcher") for each in run.of("launch")}
    return bool(started) and started <= {"python", "torchrun"}


def _split(run: LintContext, folder: Document, place: Place) -> Iterator[Finding]:
    """The checkpoint has another number of processes, or its stage stores other files."""
    stage, world, had = stage_of(run), run.data_parallel, folder.value("processes")
    if run.effective("deepspeed", _UNIVERSAL).value is True:
        return
    is_sharded = folder.value("sharded") is True
    if isinstance(stage.value, int) and (stage.value == 3) != is_sharded:
        wrote = "stage 3" if is_sharded else "stage 1 or 2"
        yield Finding(
            f"{folder.name} was written at ZeRO {wrote}, and the run is at stage {stage.value}",
            (place.label("its files are not found"), *also(stage.place)),
            ("stage 3 stores a model file for each process, the others a single one",),
            f"resume at {wrote}, or convert it: deepspeed.checkpoint.ds_to_universal",
        )
    elif world is not None and isinstance(had, int) and world != had:
        yield Finding(
            f"{folder.name} was written by {had} processes, and {world} are to load it",
            (place.label(f"{had} parts of the states"), *also(run.place(run.world))),
            ("ZeRO cannot load its states into a different number of processes",),
            "start the same number, or convert it with deepspeed.checkpoint.ds_to_universal and "
            "write checkpoint: {load_universal: true}",
        )
