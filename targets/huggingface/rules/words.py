"""Rules about words and numbers that the Trainer accepts at first and refuses later."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shown
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace

_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "passive", "detail")
_WORDS: Final[Mapping[str, tuple[tuple[str, ...], Consequence, str]]] = {
    "ddp_backend": (
        ("nccl", "gloo", "mpi", "xccl", "ccl", "hccl", "cncl", "mccl"),
        "init",
        "the process group has no such backend",
    ),
    "log_level": (_LEVELS, "init", "the trainer looks it up among its levels"),
    "log_level_replica": (_LEVELS, "init", "the trainer looks it up among its levels"),
    "torch_compile_mode": (
        (*("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"), "lite"),
        "init",
        "torch.compile looks it up when accelerate prepares the model",
    ),
    "include_num_input_tokens_seen": (
        ("all", "non_padding", "no", "true", "false"),
        "silent",
        "the trainer compares it with no and non_padding: another word counts padding too",
    ),
    "half_precision_backend": (
        ("auto", "apex", "cuda_amp", "cpu_amp"),
        "init",
        "the trainer knows these backends",
    ),
    "fp16_opt_level": (("O0", "O1", "O2", "O3"), "init", "apex knows these levels"),
}

_LISTED: Final[Mapping[str, tuple[tuple[str, ...], Consequence, str]]] = {
    "debug": (
        ("underflow_overflow", "tpu_metrics_debug"),
        "parse",
        "each word of a text, separated by spaces, is looked up; those of a list are not",
    ),
    "include_for_metrics": (
        ("inputs", "loss"),
        "silent",
        "the trainer checks for these words only: another one adds nothing to what metrics get",
    ),
}


@rule("error", "init", consumers=("transformers",), reads=keys("trainer", *_WORDS, *_LISTED))
def word_refused_later(run: LintContext) -> Iterator[Finding]:
    """The trainer's arguments accept a word, but the code that reads it refuses it."""
    for key, (words, consequence, why) in _WORDS.items():
        for place in run.each("trainer", key):
            if isinstance(place.value, str) and not _is_taken(place, words):
                yield _word_finding(place, words, consequence, why)
    yield from _backend_of_cpu(run)
    yield from _listed(run)


def _listed(run: LintContext) -> Iterator[Finding]:
    """Findings for unknown words in a list, or in a text that is split at blanks."""
    for key, (words, consequence, why) in _LISTED.items():
        for place in run.each("trainer", key):
            said = place.value.split() if isinstance(place.value, str) else place.value
            items = said if isinstance(said, list) else ()
            other = [each for each in items if isinstance(each, str) and each not in words]
            if other and not _is_open(place):
                late: Consequence = "silent" if isinstance(place.value, list) else consequence
                yield replace(
                    _word_finding(place, words, late, why),
                    message=f"`{place.path}` has no word {shown(other[0])}",
                    help=did_you_mean(nearest(other[0], words)[:1]),
                )


def _is_open(place: Place) -> bool:
    return place.document.format == "shell" or (isinstance(place.value, str) and "$" in place.value)


def _is_taken(place: Place, words: tuple[str, ...]) -> bool:
    """Whether a word is accepted; a flag such as `--log_level DEBUG` may be another program's."""
    is_flag = place.document.format == "shell"
    return place.value in words or (is_flag and place.value.lower() in words)


def _word_finding(
    place: Place, words: tuple[str, ...], consequence: Consequence, why: str
) -> Finding:
    return Finding(
        f"`{place.path}` cannot be {shown(place.value)}",
        (place.label("refused"),),
        (f"taken: {quoted(words)}", why),
        did_you_mean(nearest(str(place.value), words)[:1]),
        consequence=consequence,
    )


def _backend_of_cpu(run: LintContext) -> Iterator[Finding]:
    backend = run.said("trainer", "ddp_backend")
    alone = run.said("trainer", "use_cpu", "no_cuda")
    if backend is None or alone is None or alone.value is not True or backend.value != "nccl":
        return
    yield Finding(
        f"ddp_backend nccl fails with {alone.path}: NCCL moves tensors between GPUs only",
        (backend.label("cannot move CPU tensors"), alone.label("", primary=False)),
        (),
        "write ddp_backend: gloo",
        consequence="init",
    )


_BACKENDS: Final = (
    *("no", "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs"),
    *("ofi", "fx2trt", "onnxrt", "tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once"),
    *("tvm", "ipex", "hpu_backend", "neuron", "nvfuser", "aot_nvfuser", "aot_cudagraphs"),
)
_COMPILE_KEYS: Final[tuple[tuple[str, str, Consequence], ...]] = (
    ("trainer", "torch_compile_backend", "init"),
    ("axolotl", "torch_compile_backend", "init"),
    ("accelerate", "dynamo_config.dynamo_backend", "parse"),
)


@rule(
    "error",
    "init",
    consumers=("transformers", "accelerate"),
    reads=tuple(f"{kind}:{key}" for kind, key, _ in _COMPILE_KEYS),
)
def compile_word_unknown(run: LintContext) -> Iterator[Finding]:
    """The backend of torch.compile does not exist."""
    for kind, key, when in _COMPILE_KEYS:
        at = run.said(kind, key)
        if at is None or not isinstance(at.value, str) or not at.value:
            continue
        if at.value.lower() in _BACKENDS or _is_off(run, kind):
            continue
        near = nearest(at.value.lower(), _BACKENDS)[:1]
        yield Finding(
            f"{at.path} cannot be {at.value}",
            (at.label("not known"),),
            (f"known: {quoted(sorted(_BACKENDS))}",),
            f"did you mean {quoted(near)}?" if near else "write inductor, or leave it out",
            Fix((at.replaced(near[0]),), "unsafe") if near else None,
            consequence=when,
        )


def _is_off(run: LintContext, kind: str) -> bool:
    """Whether compilation is turned off beside the backend, which alone turns it on."""
    compiled = run.said(kind, "torch_compile")
    return compiled is not None and compiled.value is False and kind == "axolotl"


compile_turned_on = rows(
    "compile-turned-on",
    "warning",
    "silent",
    consumers=("transformers",),
    rows=tuple(
        Row(
            f"trainer:torch_compile=false & {detail}!=null",
            "torch_compile is false, and {1.key} turns it on",
            label="has no effect",
            beside_label="turns it on",
            why="a backend or a mode counts as a request to compile",
            help="remove {1.key}",
            mend=Mend("unsafe", remove=True, at=1),
            files_only=True,
        )
        for detail in ("torch_compile_backend", "torch_compile_mode")
    ),
)


_NUMBERS: Final[tuple[tuple[str, Consequence, str, str], ...]] = (
    *(
        (
            condition,
            "silent",
            "the loss takes this share of the target from the right token, and gives it to all",
            "write 0.1, or 0",
        )
        for condition in ("label_smoothing_factor<0", "label_smoothing_factor>=1")
    ),
    (
        "max_grad_norm<0",
        "silent",
        "the trainer clips gradients only where it is above 0",
        "write 1.0, or 0 for no clipping",
    ),
    (
        "neftune_noise_alpha<0",
        "step",
        "noise is drawn from -alpha up to alpha: uniform_ expects to return a [from, to) range",
        "write 5, or leave it out",
    ),
    ("dataloader_num_workers<0", "init", "a loader has 0 or more processes", "write 0"),
    (
        "dataloader_prefetch_factor<=0",
        "init",
        "each process of the loader prepares 1 or more batches ahead",
        "write 2",
    ),
    ("weight_decay<0", "init", "no optimizer takes it", "write 0"),
    (
        "ddp_timeout<=0",
        "init",
        "it is in seconds: the processes give up before they have met",
        "write 1800",
    ),
    (
        "ddp_bucket_cap_mb<=0",
        "slow",
        "0 reduces each gradient alone, and below 0 all of them at once after the backward pass",
        "write 25, or leave it out",
    ),
)
"""The condition, its consequence, the reason, and how to fix it."""


def _number(condition: str, consequence: Consequence, why: str, mend: str) -> Row:
    is_refused = consequence in ("init", "step")
    return Row(
        f"trainer:{condition}",
        "`{0.path}` cannot be {0.value}"
        if is_refused
        else "`{0.path}` {0.value} has no sensible meaning",
        label="refused" if is_refused else "no check refuses it",
        why=why,
        help=mend,
        severity=None if is_refused or condition.startswith("label") else "warning",
        consequence=consequence,
    )


number_without_meaning = rows(
    "number-without-meaning",
    "error",
    "silent",
    consumers=("transformers",),
    rows=tuple(_number(*each) for each in _NUMBERS),
)
