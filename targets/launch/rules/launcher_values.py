"""Values of launchers' flags."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import place
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import flags, hostfiles, is_unknown, launches
from tunec.compiler.lints.rule import Consequence, Finding, rule


class _Form(NamedTuple):
    """The values that a flag accepts."""

    fits: Callable[[str], bool]
    told: str
    """Their description."""
    mend: str
    consequence: Consequence = "init"


def _words(*words: str) -> Callable[[str], bool]:
    return frozenset(words).__contains__


def _like(pattern: str) -> Callable[[str], bool]:
    return re.compile(pattern).fullmatch  # type: ignore[return-value]


def _is_range(text: str) -> bool:
    """`--nnodes`: a number, or the fewest and the most."""
    parts = text.split(":")
    if len(parts) > 2 or not all(each.isdigit() for each in parts):
        return False
    return 0 < int(parts[0]) <= int(parts[-1])


_DEVICES: Final = ("cpu", "gpu", "xpu", "auto", "npu", "hpu", "mlu", "musa")
_BACKENDS: Final = ("static", "c10d", "etcd", "etcd-v2")
_PAIRS: Final = _Form(
    _like(r"\s*|\s*[^=,\s][^=,]*=[^,]+(,[^=,]+=[^,]+)*"), "KEY=VALUE,KEY=VALUE", "timeout=900"
)
_STREAMS: Final = _Form(_like(r"[0-3]|(\d+:[0-3],?)+"), "0 to 3, or RANK:NUMBER", "3")
_COUNT: Final = _Form(_like(r"[-+]?\d+"), "a whole number", "8", "parse")
_TORCHRUN: Final[Mapping[str, _Form]] = {
    "nproc_per_node": _Form(
        lambda text: text in _DEVICES or (text.isdigit() and int(text) > 0),
        "a number above 0, gpu, cpu or auto",
        "gpu",
    ),
    "nnodes": _Form(_is_range, "a number, or the fewest and the most: 2:4", "2:4"),
    "node_rank": _Form(_like(r"\d+"), "a whole number", "0", "parse"),
    "rdzv_backend": _Form(_words(*_BACKENDS), ", ".join(_BACKENDS), "c10d"),
    "rdzv_conf": _PAIRS,
    "max_restarts": _Form(_like(r"\d+"), "a whole number, 0 or above", "0"),
    "tee": _STREAMS,
    "redirects": _STREAMS,
    "start_method": _Form(
        _words("spawn", "fork", "forkserver"), "spawn, fork, forkserver", "spawn", "parse"
    ),
}
_WAYS: Final = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
_LAUNCHER_DEEPSPEED: Final[Mapping[str, _Form]] = {
    "launcher": _Form(lambda text: text.lower() in _WAYS, ", ".join(_WAYS), "openmpi"),
    "num_gpus": _COUNT,
    "num_nodes": _COUNT,
    "node_rank": _Form(_like(r"-1|\d+"), "a whole number", "0", "parse"),
}
_ACCELERATE: Final[Mapping[str, _Form]] = {
    "num_processes": _COUNT,
    "num_machines": _COUNT,
    "machine_rank": _Form(_like(r"\d+"), "a whole number", "0", "parse"),
    "rdzv_conf": _PAIRS,
    "tee": _STREAMS,
}
_FORMS: Final = {"torchrun": _TORCHRUN, "deepspeed": _LAUNCHER_DEEPSPEED, "accelerate": _ACCELERATE}
_CHOOSING: Final[Mapping[str, Callable[[str], bool]]] = {
    **dict.fromkeys(("include", "i"), lambda text: "@" in text),
    "num_nodes": lambda text: text.isdigit() and int(text) > 1,
    "num_gpus": lambda _: False,
}
"""Flags that select, and whether the value alone selects several hosts."""
_TO_BE_PUT_IN: Final = ("{", "[", "<")
"""Marks of placeholders in instructions."""
_SLOTS: Final = ("num_gpus",)
"""Flags that select devices on each host, and keep all hosts."""
_NARROW: Final = ("openmpi", "mpich", "impi", "mvapich")


@rule(
    "error",
    "init",
    consumers=("torch", "deepspeed", "accelerate"),
    reads=flags(*(name for forms in _FORMS.values() for name in forms)),
)
def launcher_value_refused(run: LintContext) -> Iterator[Finding]:
    """A launcher's flag has a value that the launcher refuses."""
    for document in launches(run, *_FORMS):
        launcher = str(document.value("launcher"))
        if document.get("script") is None:
            continue
        for name, form in _FORMS[launcher].items():
            at = document.get(f"flags.{name}")
            if at is None or is_unknown(document, at.path) or at.node.items is not None:
                continue
            text = _text(at)
            if text is not None and not form.fits(text) and not text.startswith(_TO_BE_PUT_IN):
                yield _launcher_finding(at, name, text, form)
        way = document.get("flags.launcher")
        if launcher == "deepspeed" and way is not None and str(way.value).lower() in _NARROW:
            yield from _narrowed(way, document, run)


def _text(at: Place) -> str | None:
    """The word as written; None for a flag without one, which other rules report."""
    if at.value is True and at.node.written is None:
        return None
    return at.node.written if at.node.written is not None else str(at.value)


def _launcher_finding(at: Place, name: str, text: str, form: _Form) -> Finding:
    return Finding(
        f"the launcher refuses --{name} {text}",
        (at.label("not taken"),),
        (f"the flag takes {form.told}",),
        f"write --{name} {form.mend}, or another of these",
        consequence=form.consequence,
    )


def _narrowed(way: Place, document: Document, run: LintContext) -> Iterator[Finding]:
    """A launcher that uses every slot of the hostfile, with a flag that selects fewer.

    If one host is left, deepspeed starts the run locally, without that launcher.
    """
    several = any(len(entries) > 1 for _, entries in hostfiles(run))
    for name, leaves_more in _CHOOSING.items():
        at = document.get(f"flags.{name}")
        if at is not None and (leaves_more(str(at.value)) or (several and name in _SLOTS)):
            yield Finding(
                f"--launcher {way.value} takes every slot of the hostfile",
                (at.label("refused"), way.label("", primary=False)),
                (f"deepspeed: {way.value} backend does not support worker include/exclusion",),
                "write the used slots into the hostfile, or use --launcher pdsh",
            )


_WORDS: Final = ("true", "false", "yes", "no", "1", "0")


def has_word_for_script(document: Document) -> bool:
    """Whether the launcher takes a truth value as the script."""
    script = document.value("script")
    return isinstance(script, list) and bool(script) and str(script[0]).lower() in _WORDS


@rule("error", "parse", consumers=("accelerate", "torch", "deepspeed"), reads=("launch:script",))
def switch_with_a_value(run: LintContext) -> Iterator[Finding]:
    """A launcher's switch is followed by true or false, which the launcher takes as the script."""
    for document in launches(run, "accelerate", "torchrun", "deepspeed"):
        script = document.get("script")
        if script is not None and script.node.items and has_word_for_script(document):
            yield _switch_finding(document, script)


def _switch_finding(document: Document, script: Place) -> Finding:
    word = (script.node.items or ())[0]
    launcher = document.value("launcher")
    return Finding(
        f"{launcher} would start a script named {word.value}",
        (Label("taken for the script", place(word), "script", True),),
        (
            f"the flag before it is a switch: {launcher} takes no value for it",
            f"python says: can't open file '{word.value}'",
        ),
        f"remove {word.value}; to turn the switch off, remove the switch as well",
    )


_ENGINE_DEEPSPEED: Final = frozenset(
    {
        *("zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_init_flag"),
        *("offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_save_16bit_model"),
        *("deepspeed_config_file", "deepspeed_hostfile", "deepspeed_multinode_launcher"),
        *("deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "gradient_clipping"),
        *("deepspeed_moe_layer_cls_names", "gradient_accumulation_steps"),
    }
)
"""accelerate 0.30.1 to 1.15.0 commands/launch.py: flags of DeepSpeed that nothing else reads."""
_SWITCHES: Final[Mapping[str, str]] = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP"}


@rule("error", "silent", consumers=("accelerate",), reads=("launch:flags",))
def engine_flags_unread(run: LintContext) -> Iterator[Finding]:
    """Settings of an engine that accelerate does not start."""
    files = run.of("accelerate")
    for document in launches(run, "accelerate"):
        is_unknown = "flags.config_file" in document.unknown
        if is_unknown or (document.get("flags.config_file") is not None and not files):
            continue  # the file may start the engine
        told = {str(each.value("distributed_type")) for each in files}
        for switch, engine in _SWITCHES.items():
            if document.get(f"flags.{switch}") is None and engine not in told:
                yield from _unread(document, switch)


def _unread(document: Document, switch: str) -> Iterator[Finding]:
    flags = tuple(_flags_of(document, switch))
    if flags:
        is_sure = document.get("flags.multi_gpu") is not None  # then no file is asked
        names = ", ".join("--" + each.path.removeprefix("flags.") for each in flags)
        yield Finding(
            f"accelerate does not read {names} without --{switch}",
            tuple(each.label("not read", primary=each is flags[0]) for each in flags),
            (
                "the engine is started by its switch, or by distributed_type in a config file",
                *(() if is_sure else ("accelerate's default config file may start it",)),
            ),
            f"add --{switch}",
            severity=None if is_sure else "warning",
        )


def _flags_of(document: Document, switch: str) -> Iterator[Place]:
    for path, found in document.found.items():
        name = path.removeprefix("flags.")
        is_fsdp = name.startswith("fsdp_")
        if path != name and (is_fsdp if switch == "use_fsdp" else name in _ENGINE_DEEPSPEED):
            yield found


_ENGINES: Final = ("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp")


@rule("error", "parse", consumers=("accelerate",), reads=flags(*_ENGINES))
def launch_engines_exclude(run: LintContext) -> Iterator[Finding]:
    """Switches of accelerate that exclude each other."""
    for document in launches(run, "accelerate"):
        asked = [document.get(f"flags.{name}") for name in _ENGINES]
        given = [each for each in asked if each is not None and each.value is True]
        if len(given) > 1:
            names = " and ".join("--" + each.path.removeprefix("flags.") for each in given)
            yield Finding(
                f"{names} exclude each other",
                (
                    given[-1].key_label("refused"),
                    *(each.key_label("", primary=False) for each in given[:-1]),
                ),
                ("accelerate takes one of them",),
                f"leave out --{given[0].path.removeprefix('flags.')}",
            )
