"""Questions to bash, torchrun and accelerate about their input."""

import argparse
import contextlib
import io
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tunec.compiler.consumers.json_types import plain

Question = Mapping[str, Any]
Answer = dict[str, Any]

_SECONDS: Final = 20.0


def shell(question: Question) -> Answer:
    """Whether bash can parse `text` (`bash -n`, which runs none of it)."""
    bash = shutil.which("bash")
    if bash is None:
        raise FileNotFoundError("there is no bash on this machine")
    read = subprocess.run(  # noqa: S603
        [bash, "-n"],
        input=question["text"],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    version = subprocess.run(  # noqa: S603
        [bash, "-c", "echo $BASH_VERSION"],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    said = (read.stderr.strip().splitlines() or [f"status {read.returncode}"])[0]
    return _answer(version.stdout.strip(), {}, said if read.returncode else "")


def torchrun(question: Question) -> Answer:
    """The values that torchrun's own parser reads from `argv`, the words after its name."""
    import torch
    from torch.distributed.run import get_args_parser

    return _parsed(torch.__version__, get_args_parser, question)


def accelerate(question: Question) -> Answer:
    """The values that accelerate's launcher reads from `argv`, the words after `launch`."""
    import accelerate as package
    from accelerate.commands.launch import launch_command_parser

    return _parsed(package.__version__, launch_command_parser, question)


def _parsed(
    version: str, make: Callable[[], argparse.ArgumentParser], question: Question
) -> Answer:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = make().parse_args(list(question["argv"]))
    except SystemExit as left:
        lines = said.getvalue().strip().splitlines()
        return _answer(version, {}, lines[-1] if lines else f"status {left.code}")
    return _answer(version, {name: plain(value) for name, value in vars(found).items()})


def config(question: Question) -> Answer:
    """The values that accelerate loads from `yaml`, the text of its config file."""
    import accelerate as package
    from accelerate.commands.config.config_args import load_config_from_file

    path = Path("accelerate.yaml").absolute()
    path.write_text(question["yaml"], encoding="utf-8")
    try:
        held = load_config_from_file(str(path))
    except ImportError:
        raise
    except Exception as fault:  # noqa: BLE001  whatever it raises is its answer
        return _answer(package.__version__, {}, f"{type(fault).__name__}: {fault}")
    return _answer(package.__version__, plain(held.to_dict()))


def _answer(version: str, values: Mapping[str, Any], refused: str = "") -> Answer:
    return {"version": version, "values": dict(values), "refused": refused or None}
