"""One process is started where several devices are seen."""

from collections.abc import Iterator
from pathlib import PurePath

from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.launch.more_than_allocated import given_to
from tunec.compiler.lints.launch.scripts import batch_of, count, launches, listed, variable
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "python"):
        trainers = [each for each in run.of("trainer") if _starts(document, each)]
        seen, place = _seen(run, document), document.get("launcher")
        if not trainers or seen is None or seen < 2 or place is None or _is_placed(trainers):
            continue
        what, note, when = _what(run, document)
        batch = batch_of(run, document)
        visible = variable(document, "CUDA_VISIBLE_DEVICES")
        if visible is None and batch is not None:
            visible = (given_to(batch) or (0, None))[1]
        yield Finding(
            f"one process sees {seen} devices: {what}",
            (
                place.label("starts one process"),
                *([visible.label("", primary=False)] if visible else []),
            ),
            (note,),
            f"start it with torchrun --nproc_per_node {seen}, or make one device visible",
            consequence=when,
            severity="error" if when in ("parse", "init") else None,
        )


def _starts(launcher: Document, trainer: Document) -> bool:
    """Whether a script hands its flags to a trainer, or the file of GLM-4's, which it names."""
    if trainer.name == launcher.name:
        return True
    words = launcher.value("script")
    is_named = isinstance(words, list) and PurePath(trainer.name).name in map(str, words)
    return is_named and trainer.is_view and not trainer.is_partial


def _seen(run: Run, document: Document) -> int | None:
    """Devices that the process sees; None: unknown."""
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
    """A model that is spread over the devices by a map is not copied to each."""
    keys = ("device_map", "use_cpu", "no_cuda", "load_in_8bit", "load_in_4bit")
    return any(each.value(key) for each in trainers for key in keys)


def _what(run: Run, document: Document) -> tuple[str, str, Consequence]:
    if any(each.kind == "llamafactory" and each.name == document.name for each in run.documents):
        note = "LLaMA-Factory: Please launch distributed training with llamafactory-cli or torchrun"
        return "LLaMA-Factory refuses it", note, "parse"
    if run.runs("trl>=1.15") and any(e.name == document.name for e in run.of(*TRL)):
        note = "does not support nn.DataParallel, which Trainer uses when several GPUs are visible"
        return "TRL refuses it", f"TRL: {note}", "init"
    if run.of("deepspeed"):
        return "DeepSpeed uses one", "the others stand idle", "slow"
    note = (
        "DataParallel copies the model to each device in every step and gathers all outputs on "
        "the first; the batch is per_device_train_batch_size for each of them"
    )
    return "the Trainer uses DataParallel", note, "slow"


RULE = Rule(
    name="several-devices-in-one-process",
    severity="warning",
    consequence="slow",
    consumers=("transformers", "llamafactory", "trl"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_wrap_model`: if self.args.n_gpu > 1: "
            "nn.DataParallel(model)"
        ),
        "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`: NOT_DISTRIBUTED",
        "trl 1.15.0 and 1.16.0 trainer/*_trainer.py `__init__`: does not support nn.DataParallel",
        "zai-org/GLM-4#281: 8 A100 and `python finetune_vision.py`",
    ),
    check=_check,
)
