"""Words and numbers that the Trainer takes first and refuses later."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shown
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, rule

_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "passive", "detail")
_WORDS: Final[Mapping[str, tuple[tuple[str, ...], Consequence, str]]] = {
    "ddp_backend": (
        ("nccl", "gloo", "mpi", "xccl", "ccl", "hccl", "cncl", "mccl"),
        "init",
        "the process group has no such backend",
    ),
    "log_level": (_LEVELS, "init", "the trainer looks it up among its levels"),
    "log_level_replica": (
        ("debug", "info", "warning", "error", "critical", "passive", "detail"),
        "init",
        "the trainer looks it up among its levels",
    ),
    "torch_compile_mode": (
        (
            *("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            "lite",
        ),
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


@rule(
    "word-refused-later",
    "error",
    "init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `get_process_log_level`: "
            "trainer_log_levels[self.log_level]; trainer.py: half_precision_backend; "
            "`__post_init__`: DebugOption(word); trainer.py: args.include_for_metrics"
        ),
        "torch 2.13.0 distributed/distributed_c10d.py `Backend.backend_list`",
        "torch 2.13.0 _inductor/__init__.py `list_mode_options`: mode_options[mode]",
        "NVIDIA/apex apex/amp/frontend.py `opt_levels`",
    ),
)
def word_refused_later(run: LintContext) -> Iterator[Finding]:
    """A word that the trainer's arguments take, and that what it is handed to refuses."""
    for key, (words, consequence, why) in _WORDS.items():
        for place in run.each("trainer", key):
            if isinstance(place.value, str) and not _is_taken(place, words):
                yield _finding(place, words, consequence, why)
    yield from _backend_of_cpu(run)
    yield from _listed(run)


_LISTED: Final[Mapping[str, tuple[tuple[str, ...], Consequence, str]]] = {
    "debug": (
        ("underflow_overflow", "tpu_metrics_debug"),
        "parse",
        "each word of a text, apart by blanks, is looked up; of a list none is",
    ),
    "include_for_metrics": (
        ("inputs", "loss"),
        "silent",
        "the trainer asks for these words, and another adds nothing to what metrics are given",
    ),
}


def _listed(run: LintContext) -> Iterator[Finding]:
    """Words of a list, or of a text that is split at its blanks."""
    for key, (words, consequence, why) in _LISTED.items():
        for place in run.each("trainer", key):
            said = place.value.split() if isinstance(place.value, str) else place.value
            items = said if isinstance(said, list) else ()
            other = [each for each in items if isinstance(each, str) and each not in words]
            if other and not _is_open(place):
                late: Consequence = "silent" if isinstance(place.value, list) else consequence
                yield replace(
                    _finding(place, words, late, why),
                    message=f"`{place.path}` has no word {shown(other[0])}",
                    help=did_you_mean(nearest(other[0], words)[:1]),
                )


def _is_open(place: Place) -> bool:
    return place.document.format == "shell" or (isinstance(place.value, str) and "$" in place.value)


def _is_taken(place: Place, words: tuple[str, ...]) -> bool:
    """Flags are known by their names only: `--log_level DEBUG` may be another program's."""
    is_flag = place.document.format == "shell"
    return place.value in words or (is_flag and place.value.lower() in words)


def _finding(place: Place, words: tuple[str, ...], consequence: Consequence, why: str) -> Finding:
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
        f"ddp_backend nccl with {alone.path}: NCCL moves tensors between GPUs only",
        (backend.label("no tensors of the CPU"), alone.label("", primary=False)),
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
    "compile-word-unknown",
    "error",
    "init",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DynamoBackend`, "
            "`TorchDynamoPlugin.__post_init__`: DynamoBackend(self.backend.upper()): ValueError"
        ),
        "transformers 4.40.2 to 5.23.0 training_args.py: ACCELERATE_DYNAMO_BACKEND",
    ),
)
def compile_word_unknown(run: LintContext) -> Iterator[Finding]:
    """A backend for torch.compile that nobody knows."""
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
    """Whether compiling is turned off beside it; a backend alone turns it on."""
    compiled = run.said(kind, "torch_compile")
    return compiled is not None and compiled.value is False and kind == "axolotl"


_DETAILS: Final = ("torch_compile_backend", "torch_compile_mode")


@rule(
    "compile-turned-on",
    "error",
    "silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: if torch_compile_mode "
            "or torch_compile_backend is not None and not torch_compile: torch_compile = True"
        ),
        (
            "transformers 5.23.0 run on CPU: TrainingArguments(torch_compile=False, "
            "torch_compile_backend='inductor').torch_compile is True"
        ),
    ),
)
def compile_turned_on(run: LintContext) -> Iterator[Finding]:
    """torch_compile is false, and a detail of it turns it on."""
    for document in run.of("trainer"):
        off = document.get("torch_compile")
        if off is None or off.value is not False or document.is_view:
            continue
        for key in _DETAILS:
            place = document.get(key)
            if place is not None and place.value is not None:
                yield Finding(
                    f"torch_compile is false, and {key} turns it on",
                    (off.label("not so"), place.label("turns it on", primary=False)),
                    ("a backend or a mode is taken as the wish to compile",),
                    f"remove {key}",
                    Fix((place.removed(),), "unsafe"),
                )


Told = tuple[str, Callable[[float], bool], str, str, Consequence]
_NUMBER_KEYS: Final[tuple[Told, ...]] = (
    (
        "label_smoothing_factor",
        lambda value: value < 0 or value >= 1,
        "it is the share of the target that all words get: the right word is left with the rest",
        "write 0.1, or 0",
        "silent",
    ),
    (
        "max_grad_norm",
        lambda value: value < 0,
        "gradients are clipped only where it is above 0",
        "write 1.0, or 0 for no clipping",
        "silent",
    ),
    (
        "neftune_noise_alpha",
        lambda value: value < 0,
        "the noise is drawn from -alpha to alpha, over a root",
        "write 5",
        "silent",
    ),
    (
        "dataloader_num_workers",
        lambda value: value < 0,
        "a loader has 0 or more processes",
        "write 0",
        "init",
    ),
    (
        "dataloader_prefetch_factor",
        lambda value: value <= 0,
        "each process of the loader prepares 1 or more batches ahead",
        "write 2",
        "init",
    ),
    ("weight_decay", lambda value: value < 0, "no optimizer takes it", "write 0", "init"),
    (
        "ddp_timeout",
        lambda value: value <= 0,
        "it is in seconds: the processes give up before they have met",
        "write 1800",
        "init",
    ),
    (
        "ddp_bucket_cap_mb",
        lambda value: value <= 0,
        "0 reduces each gradient alone, and below 0 all of them at once after the backward pass",
        "write 25, or leave it out",
        "slow",
    ),
)
_RUNS: Final = ("silent", "slow")


@rule(
    "number-without-meaning",
    "error",
    "silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer_pt_utils.py `LabelSmoother`: (1 - epsilon) * "
            "nll_loss + epsilon * smoothed_loss; trainer.py: if self.args.max_grad_norm > 0"
        ),
        (
            "torch 2.13.0 utils/data/dataloader.py `DataLoader.__init__`: num_workers option "
            "should be non-negative, prefetch_factor option should be non-negative; optim/adam.py: "
            "Invalid weight_decay value; nn/parallel/distributed.py: bucket_cap_mb, asked on gloo "
            "with 0 and -5; distributed/rendezvous.py: TCPStore(timeout=...)"
        ),
    ),
)
def number_without_meaning(run: LintContext) -> Iterator[Finding]:
    """A number outside the range in which the trainer does something with it."""
    for key, is_odd, why, mend, consequence in _NUMBER_KEYS:
        for place in run.each("trainer", key):
            if is_number(place.value) and is_odd(place.value):
                refused = consequence not in _RUNS
                yield Finding(
                    f"`{place.path}` cannot be {place.value}"
                    if refused
                    else f"`{place.path}` {place.value} means nothing",
                    (place.label("refused" if refused else "taken, and not what it says"),),
                    (why,),
                    mend,
                    severity=None if refused or key.startswith("label") else "warning",
                    consequence=consequence,
                )
