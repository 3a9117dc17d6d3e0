"""Flags of a launcher behind the script, which gets them instead."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.launch.switch_with_a_value import has_word_for_script
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "torchrun": (
        *("nproc_per_node", "nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id"),
        *("standalone", "master_port", "master_addr"),
    ),
    "deepspeed": ("num_gpus", "num_nodes", "include", "exclude", "hostfile", "master_port"),
    "accelerate": (
        *("num_processes", "num_machines", "machine_rank", "main_process_port", "multi_gpu"),
        *("main_process_ip", "use_deepspeed", "use_fsdp", "gpu_ids", "deepspeed_config_file"),
    ),
}

_OF_ACCELERATE: Final = re.compile(r"(?i)accelerate|zero[-_]?[123]|fsdp|multi[-_]gpu|deepspeed")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, *_FLAGS):
        launcher, script = str(document.value("launcher")), document.get("script")
        if script is None or not script.node.items or has_word_for_script(document):
            continue
        for item in script.node.items[1:]:
            name = _name(item)
            if name in _FLAGS[launcher] and document.get(f"flags.{name}") is None:
                yield _finding(document, launcher, item, script.node.items[0])
        if launcher == "accelerate" and document.get("flags.config_file") is None:
            yield from _of_file(document, script.node.items)


def _of_file(document: Document, words: Sequence[Node]) -> Iterator[Finding]:
    """`--config_file`, which scripts have as well, with a file that is called as accelerate's."""
    for item, after in zip(words[1:], [*words[2:], *words[:1]], strict=len(words) > 1):
        value = str(item.value).partition("=")[2] or str(after.value)
        if _name(item) == "config_file" and _OF_ACCELERATE.search(value):
            yield replace(_finding(document, "accelerate", item, words[0]), severity="warning")


def _name(item: Node) -> str:
    text = item.value if isinstance(item.value, str) else ""
    return text.partition("=")[0].removeprefix("--").replace("-", "_") if text[:2] == "--" else ""


def _finding(document: Document, launcher: str, item: Node, script: Node) -> Finding:
    flag = str(item.value).partition("=")[0]
    return Finding(
        f"{flag} stands behind {script.value}, which is given it instead of {launcher}",
        (
            Label(f"not for {launcher}", place(item), "script", True),
            Label("the launcher's own flags end here", place(script), "script", False),
        ),
        (f"{launcher} starts as many processes as it does without the flag",),
        f"write {flag} before {script.value}",
        consequence="parse" if _is_strict(document) else None,
    )


def _is_strict(document: Document) -> bool:
    """Whether the script's own parser refuses flags that it does not know."""
    return str(document.value("script", [""])[0]).startswith(("trl", "llamafactory"))


RULE = Rule(
    name="launcher-flags-behind-script",
    severity="error",
    consequence="silent",
    consumers=("torch", "deepspeed", "accelerate"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py `get_args_parser`: training_script_args is REMAINDER; "
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `parse_args`: user_args; accelerate "
            "0.30.1 to 1.15.0 commands/launch.py: training_script_args"
        ),
        "EleutherAI/gpt-neox#414",
    ),
    check=_check,
)
