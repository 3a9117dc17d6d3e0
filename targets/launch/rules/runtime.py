"""Variables of the allocator, of threads and for debugging."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Label, Severity
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.launch import count, flags, launches, per_node, variable, variables
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.launch.lines import at_offset

_NAMES: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SWITCHES: Final = (
    *("expandable_segments", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register"),
    "pinned_use_background_threads",
)
_LEAST_SPLIT: Final = 20
_SINCE: Final = (("expandable_segments", "2.1"), ("pinned_use_background_threads", "2.5"))
"""Settings, each with a release before which none has it: pytorch/pytorch#135524, which added the
second, was opened in September 2024, after torch 2.4."""


@rule("error", "load", consumers=("torch",), reads=variables(*_NAMES))
def allocator_setting_refused(run: LintContext) -> Iterator[Finding]:
    """torch's allocator refuses a setting."""
    seen = set[str]()
    for document in launches(run):
        for name in _NAMES:
            place = variable(document, name)
            if place is None or not isinstance(place.value, str) or str(place.span) in seen:
                continue
            seen.add(str(place.span))
            for part in place.value.split(","):
                why = _why(part.strip()) if "[" not in place.value else None
                why = why or _too_new(run, part.partition(":")[0].strip())
                if why is not None:
                    yield _refused_setting(place, name, *why)


def _why(part: str) -> tuple[str, str] | None:
    """The error in one setting, and its correction."""
    key, given, value = part.partition(":")
    if not part:
        return None
    if not given:
        key, _, value = part.partition("=")
        return f"`{part}` has no colon", f"{key}:{value or 'VALUE'}"
    key, value = key.strip(), value.strip()
    if key in _SWITCHES and value not in ("True", "False"):
        return f"{key} is True or False, not {value}", f"{key}:{value.title()}"
    if key == "max_split_size_mb" and value.isdigit() and int(value) < _LEAST_SPLIT:
        return f"{key} {value} is below {_LEAST_SPLIT}", f"{key}:128"
    if key == "garbage_collection_threshold" and not _is_share(value):
        return f"{key} {value} does not lie between 0 and 1", f"{key}:0.8"
    return None


def _too_new(run: LintContext, key: str) -> tuple[str, str] | None:
    """The error of a setting that the running release does not have."""
    for name, since in _SINCE:
        if key == name and run.runs(f"torch<{since}") is True:
            return (
                f"{run.release('torch')} has no {key}",
                "max_split_size_mb:128, or take a newer one",
            )
    return None


def _is_share(value: str) -> bool:
    try:
        return 0 < float(value) < 1
    except ValueError:
        return False


def _refused_setting(place: Place, name: str, why: str, mend: str) -> Finding:
    return Finding(
        f"{name}: {why}",
        (place.label("refused"),),
        ("it is read when the first tensor is put on a device",),
        f"write {mend}",
    )


@rule("warning", "slow", consumers=("torch", "deepspeed"), reads=("slot:zero.offload_optimizer",))
def cpu_optimizer_on_one_thread(run: LintContext) -> Iterator[Finding]:
    """The optimizer runs on the CPU with a single thread in each process."""
    offload = run.slot("zero.offload_optimizer")
    where = run.place(offload)
    if offload is None or offload.value not in ("cpu", "nvme"):
        return
    is_accelerates = where is not None and where.document.kind == "accelerate"
    readers = ("accelerate",) if is_accelerates else ("torchrun", "accelerate", "deepspeed")
    for document in launches(run, *readers):
        place = _single(document)
        if place is None or _UNTRAINED.search(_script(document)) or _is_refused(run, document):
            continue
        if any(document.value(each) for each in _OTHER_ENGINES):
            continue
        yield Finding(
            "the optimizer that steps on the CPU has one thread in each process",
            (place.label("OMP_NUM_THREADS is 1"), *also(where, "steps on the CPU")),
            (
                (
                    "DeepSpeedCPUAdam divides its step among OpenMP's threads: eight of them take "
                    "about an eighth of the time"
                ),
            ),
            "export OMP_NUM_THREADS=N, where N is the node's cores divided by its processes",
        )


_OTHER_ENGINES: Final = ("flags.multi_gpu", "flags.use_fsdp", "flags.use_megatron_lm")
"""accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: with one of them the
engine of its file is not used."""


def _is_refused(run: LintContext, document: Document) -> bool:
    """Whether accelerate launch gets DeepSpeed's file as its own, and starts nothing."""
    named = PurePath(str(document.value("flags.config_file"))).name
    return any(PurePath(each.name).name == named for each in run.of("deepspeed"))


_UNTRAINED: Final = re.compile(r"(?:^|[/._'-])(?:eval|infer|generat|predict|sampl)", re.IGNORECASE)
"""Names of scripts without an optimizer."""


def _script(document: Document) -> str:
    words = document.value("script")
    return str(words[0]) if isinstance(words, list) and words else str(words or "")


def _single(document: Document) -> Place | None:
    """The place that sets a single thread."""
    said = variable(document, "OMP_NUM_THREADS")
    if said is not None:
        return said if count(said) == 1 else None
    if "environment.OMP_NUM_THREADS" in document.unknown or _leaves_threads(document):
        return None
    if document.value("launcher") == "accelerate":
        threads = document.get("flags.num_cpu_threads_per_process")
        is_one = threads is None or count(threads) == 1
        return (threads or document.get("launcher")) if is_one else None
    started = per_node(document)
    return started[1] if started is not None and started[0] > 1 else None


def _leaves_threads(document: Document) -> bool:
    """Whether the launcher leaves threads alone, as deepspeed does unless it binds cores.

    deepspeed 0.14.5 to 0.19.8 launcher/launch.py.
    """
    return bool(document.value("launcher") == "deepspeed")


_SHAPES: Final = (
    "accelerate's own gathers and reductions compare the shapes of all processes first; gradients "
    "are not among them"
)

_LEFT_ON: Final = "{0.key}={0.value} slows the whole run"
_REMOVE: Final = "remove it when the fault is found"
_VARIABLES: Final = tuple(
    Row(
        f"launch:environment.{condition}",
        _LEFT_ON,
        "left on",
        why,
        _REMOVE,
        severity="note" if why == _SHAPES else None,
    )
    for condition, why in (
        ("CUDA_LAUNCH_BLOCKING=1", "each kernel is waited for before the next is launched"),
        (
            "TORCH_DISTRIBUTED_DEBUG~=detail",
            "each collective is checked by further ones among all processes before it runs",
        ),
        (
            "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
            "each tensor is allocated and freed by the driver, which waits for the device",
        ),
        ("ACCELERATE_DEBUG_MODE~=1|true|yes|on|y|t", _SHAPES),
    )
)


@rule(
    "warning",
    "slow",
    consumers=("torch", "accelerate"),
    reads=("accelerate:debug", *flags("debug"), *reads_of(_VARIABLES)),
)
def debugging_left_on(run: LintContext) -> Iterator[Finding]:
    """A debugging variable is set for a whole run."""
    yield from _of_accelerate(run)
    scripts = (each.name for each in run.of("launch"))
    is_test = any(_OF_TESTS.search(name) for name in scripts)
    for each in found(_VARIABLES, run):
        is_idle = is_test or _is_explained(run, each) or _is_alone(run, each)
        yield replace(each, severity="note") if is_idle else each


def _is_alone(run: LintContext, finding: Finding) -> bool:
    """Whether collectives are checked, and each command of the file starts one process."""
    files = {each.span.file for each in finding.labels if each.span is not None}
    starts = [each for each in run.of("launch") if each.name in files and each.get("launcher")]
    counts = [(per_node(each) or (0,))[0] * (count(each.get("nodes")) or 1) for each in starts]
    return _COLLECTIVES in finding.message and bool(counts) and all(n == 1 for n in counts)


_COLLECTIVES: Final = "TORCH_DISTRIBUTED_DEBUG"


_NEEDED: Final = re.compile(r"(?i)^\s*#.*(?:do not remove|workaround|otherwise|needed)")


def _is_explained(run: LintContext, finding: Finding) -> bool:
    """Whether the comment above explains why the variable is set."""
    spans = [each.span for each in finding.labels if each.primary and each.span is not None]
    texts = {each.name: each.text for each in run.documents}
    lines = ((texts.get(at.file, "").splitlines(), at.line) for at in spans)
    return any(len(text) >= line > 1 and _NEEDED.search(text[line - 2]) for text, line in lines)


_OF_TESTS: Final = re.compile(r"(?<![a-z])(?:tests?|debug(?:ging)?|eval(?:uate|uation)?)(?![a-z])")
"""Names of scripts that test the network or the devices, look for a fault, or only evaluate."""


def _of_accelerate(run: LintContext) -> Iterator[Finding]:
    """The debug mode of accelerate, by its file or flag; a single process ignores it."""
    places = (*run.each("accelerate", "debug"), *run.each("launch", "flags.debug"))
    for place in places:
        is_several = place.document.value("distributed_type") not in ("NO", "no", False)
        is_text = place.document.kind == "accelerate" and isinstance(place.value, str)
        if (place.value is True or (is_text and place.value)) and is_several:
            yield Finding(
                f"{place.path.removeprefix('flags.')} is on: accelerate checks its own collectives",
                (place.label("left on"),),
                (_SHAPES, *(("the launcher only checks that something is written",) * is_text)),
                _REMOVE,
                severity="note",
            )


_NEW: Final = "PYTORCH_ALLOC_CONF"
_OLD: Final = "PYTORCH_CUDA_ALLOC_CONF"


@rule("warning", "silent", consumers=("torch",), reads=variables(_NEW))
def variable_of_a_newer_torch(run: LintContext) -> Iterator[Finding]:
    """The allocator's new variable, with a torch that only reads the old one."""
    if run.runs("torch<2.8") is not True:
        return
    seen = set[str]()
    for document in launches(run):
        place = variable(document, _NEW)
        if place is None or variable(document, _OLD) is not None or str(place.span) in seen:
            continue
        seen.add(str(place.span))
        yield Finding(
            f"{run.release('torch')} does not read {_NEW}",
            (place.key_label("not a variable that is read"),),
            (f"the allocator's variable is {_OLD}; the other name is newer",),
            f"write {_OLD}",
        )


class _Older(Struct, frozen=True):
    """A variable that later releases do not read."""

    name: str
    since: str
    instead: tuple[str, ...]
    """The variables that hold today, the one to write first."""
    message: str
    why: str
    severity: Severity | None = None


_CACHE: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
_OLDER: Final = (
    *(
        _Older(
            name,
            "transformers>=5",
            _CACHE,
            f"transformers 5 does not read {name}: models are kept in ~/.cache/huggingface",
            "they are downloaded once more, and not found on a node without a network",
        )
        for name in ("TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE")
    ),
    _Older(
        "HF_HUB_ENABLE_HF_TRANSFER",
        "huggingface_hub>=1",
        ("HF_XET_HIGH_PERFORMANCE",),
        "huggingface_hub does not read HF_HUB_ENABLE_HF_TRANSFER since 1.0",
        "downloads go through Xet now, which has a variable of its own for more speed",
        "note",
    ),
)
"""transformers 4.57.6 utils/hub.py reads the first two, and no file of 5.0.0 to 5.23.0 does;
huggingface_hub 0.36.2 and 1.3.7 constants.py."""


@rule(
    "warning",
    "silent",
    consumers=("transformers", "huggingface_hub"),
    reads=(*variables(*(each.name for each in _OLDER)), *(f"{kind}:*" for kind in ("hf", *TRL))),
)
def variable_of_an_older_release(run: LintContext) -> Iterator[Finding]:
    """A script sets a variable that the releases of this run do not read."""
    seen = set[str]()
    unread = [e for e in _OLDER if run.runs(e.since) is True and not _reads_itself(run, e.name)]
    for document in launches(run):
        for older in unread:
            place = variable(document, older.name)
            if place is None or str(place.span) in seen:
                continue
            seen.add(str(place.span))
            if any(variable(document, each) is not None for each in older.instead):
                continue
            yield _unread(older, place.key_label("not read"))
    for document in scripts_of(run):
        for older in unread:
            at = re.search(
                rf"""(?m)^[ \t]*os\.environ\[['"]{older.name}['"]\][ \t]*=""", document.text
            )
            is_held = any(each in document.text for each in older.instead)
            if at is not None and not is_held:
                start = document.text.index(older.name, at.start())
                label = at_offset(document, start, len(older.name), "not read")
                yield _unread(older, label)


def _reads_itself(run: LintContext, name: str) -> bool:
    """Whether a file of the run reads a variable itself, such as for `cache_dir`."""
    reads = re.compile(
        rf"""(?:getenv|environ\.get)\(\s*['"]{name}\b|environ\[['"]{name}['"]\](?!\s*=[^=])"""
        rf"""|cache[-_]dir[= ]['"]?\$\{{?{name}\b"""
    )
    return any(reads.search(each.text) for each in run.documents)


def _unread(older: _Older, label: Label) -> Finding:
    instead = f"set {older.instead[0]} instead"
    return Finding(older.message, (label,), (older.why,), instead, severity=older.severity)
