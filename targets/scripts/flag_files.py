"""The files of scripts whose flags may be in a TOML file: this, and a command that names it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tunec.compiler.consumers.moved_keys import Moved
from tunec.compiler.releases import Releases
from tunec.compiler.target import Cannot, Entry, File, Json, Target, in_no_plan
from tunec.schemas.frozen import replace
from tunec.targets.read_only import schema_of
from tunec.targets.scripts.file import own_script
from tunec.targets.trainers import training_denoisers

_ACCELERATE: Final = Cannot("its scripts are started by accelerate", True, ("accelerate",))


def config_and_command(
    package: str,
    releases: tuple[str, ...],
    rows: tuple[Entry, ...],
    recognise: Callable[[Json], bool],
    leaves: tuple[Moved, ...],
    foreign: Callable[[Mapping[str, Json]], Iterable[tuple[str, str]]],
) -> tuple[File, File]:
    """The config, and a command that names one.

    The rows of a command know nothing about flags that neither sets, and a flag overrides the
    config: the scripts parse the command again after the file (kohya-ss/sd-scripts 0.10.1
    library/train_util.py, kohya-ss/musubi-tuner 0.3.4 training/parser_common.py,
    `read_config_from_file`).
    """
    config = File(
        f"{package}.toml",
        "json",
        rows,
        recognise,
        schema_of(package, releases, package),
        when=in_no_plan,
        leaves=leaves,
        foreign=foreign,
        names=("dataset_config",),
    )
    command = File(
        f"{package} command",
        "json",
        tuple(replace(each, absent=()) for each in rows),
        _names_config,
        config.schema,
        when=in_no_plan,
        leaves=leaves,
        names=("config_file", "dataset_config"),
        over=config.name,
    )
    return config, command


def _names_config(document: Json) -> bool:
    return isinstance(document, Mapping) and "config_file" in document


def data_file(
    package: str,
    rows: tuple[Entry, ...],
    recognise: Callable[[Json], bool],
    leaves: tuple[Moved, ...],
) -> File:
    """The data's own file, which a config or a command names."""
    name = f"{package} dataset.toml"
    return File(name, "json", rows, recognise, when=in_no_plan, leaves=leaves)


def target_of(
    package: str, supported: Releases, releases: tuple[str, ...], files: tuple[File, ...]
) -> Target:
    """The target of such scripts, which train only denoisers; it is read and never written."""
    return Target(
        name=package,
        package=package,
        supported=supported,
        latest=releases[-1],
        releases=releases,
        files=files,
        cannot={
            **training_denoisers(package),
            "launch.script": own_script(package),
            "launch.launcher": _ACCELERATE,
        },
        run_by="simpletuner",
    )
