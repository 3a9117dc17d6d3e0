"""A word that the trainer's arguments take, and that what it is handed to refuses."""

from collections.abc import Iterator, Mapping
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


def _is_taken(place: Place, words: tuple[str, ...]) -> bool:
    """Flags are known by their names only: `--log_level DEBUG` may be another program's."""
    is_flag = place.document.format == "shell"
    return place.value in words or (is_flag and place.value.lower() in words)


def _finding(place: Place, words: tuple[str, ...], consequence: Consequence, why: str) -> Finding:
    return Finding(
        f"`{place.path}` cannot be {shown(place.value)}",
        (place.label("refused"),),
        (f"taken: {quoted(words)}", why),
        did_you_mean(nearest(place.value, words)[:1]),
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
            "trainer_log_levels[self.log_level]; trainer.py: half_precision_backend"
        ),
        "torch 2.13.0 distributed/distributed_c10d.py `Backend.backend_list`",
        "torch 2.13.0 _inductor/__init__.py `list_mode_options`: mode_options[mode]",
        "NVIDIA/apex apex/amp/frontend.py `opt_levels`",
    ),
    check=_check,
)
