"""A word that the trainer's arguments take, and that what it is handed to refuses."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shown
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

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


def _check(run: Run) -> Iterator[Finding]:
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


def _listed(run: Run) -> Iterator[Finding]:
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


def _backend_of_cpu(run: Run) -> Iterator[Finding]:
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


RULE = Rule(
    name="word-refused-later",
    severity="error",
    consequence="init",
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
    check=_check,
)
