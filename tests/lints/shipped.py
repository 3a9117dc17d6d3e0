"""Configs that the makers of the consumers ship: how many are read, and what is said of them.

    python tests/lints/shipped.py [FOLDER...]

Without folders the released packages are downloaded by pip into the user's cache (never committed).
Each config is linted alone with what it refers to, as a user of that release would.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunec.compiler.consumers.environments import default_cache
from tunec.compiler.lints.environment import environment_of
from tunec.compiler.lints.lint import lint_files
from tunec.compiler.lints.own_source import OwnSource, own_source
from tunec.compiler.lints.repository import reach_of
from tunec.targets.registry import TARGETS


@dataclass(frozen=True, slots=True)
class Shipment:
    """A released package, and which of its files are configs that people start from."""

    package: str
    version: str
    is_wheel: bool
    globs: tuple[str, ...]
    readers: tuple[str, ...]
    """As `--from` has them: who reads the configs."""


SHIPMENTS = (
    Shipment(
        "axolotl",
        "0.19.0",
        is_wheel=False,
        globs=(
            "axolotl-*/examples/[!a]*/**/*.y*ml",
            "axolotl-*/examples/a[!r]*/**/*.y*ml",  # `archived` holds those of old releases
            "axolotl-*/**/deepspeed_configs/*.json",
        ),
        readers=("axolotl@0.19.0",),
    ),
    Shipment(
        "simpletuner",
        "4.10.1",
        is_wheel=True,
        globs=(
            "simpletuner/examples/**/config.json",
            "simpletuner/examples/**/config.env",
            "simpletuner/examples/**/*.toml",
            "simpletuner/examples/*databackend*.json",
            "simpletuner/examples/*/*databackend*.json",
        ),
        readers=("simpletuner@4.10.1",),
    ),
    Shipment(
        "llamafactory",
        "0.9.5",
        is_wheel=False,
        globs=(
            "llamafactory-*/examples/accelerate/*.yaml",
            "llamafactory-*/examples/ascend/*.yaml",
            "llamafactory-*/examples/deepspeed/*.json",
            "llamafactory-*/examples/extras/**/*_sft*.yaml",
            "llamafactory-*/examples/extras/**/*_full*.yaml",
            "llamafactory-*/examples/inference/*.yaml",
            "llamafactory-*/examples/ktransformers/*_lora/*.yaml",
            "llamafactory-*/examples/megatron/*.yaml",
            "llamafactory-*/examples/merge_lora/*.yaml",
            "llamafactory-*/examples/train_*/*.*",
        ),
        readers=("llamafactory@0.9.5",),
    ),
    Shipment(
        "torchtune",
        "0.6.1",
        is_wheel=True,
        globs=("recipes/configs/**/*.yaml",),
        readers=("torchtune@0.6.1",),
    ),
    Shipment("trl", "1.16.0", is_wheel=False, globs=("trl-*/**/*_configs/*.yaml",), readers=()),
)


class Unreachable(Exception):
    """A package cannot be downloaded here; the message says why."""


@dataclass(frozen=True, slots=True)
class Told:
    """What was said of one config."""

    path: Path
    errors: tuple[str, ...]
    is_known: bool
    """Whether it was recognised at all."""


def unpacked(shipment: Shipment) -> Path:
    """The folder of a package's contents, downloaded once; raises Unreachable."""
    folder = default_cache().parent / "shipped" / f"{shipment.package}-{shipment.version}"
    if folder.exists():
        return folder
    staged = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    archive = _download(shipment, staged)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(staged)  # noqa: S202  a release from the index, by version
    else:
        with tarfile.open(archive) as sdist:
            sdist.extraction_filter = getattr(tarfile, "data_filter", None)
            sdist.extractall(staged)  # noqa: S202  the same
    archive.unlink()
    staged.rename(folder)
    return folder


def _download(shipment: Shipment, folder: Path) -> Path:
    kind = "--only-binary" if shipment.is_wheel else "--no-binary"
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--no-build-isolation", "--ignore-requires-python", kind, ":all:"),
        *(f"{shipment.package}=={shipment.version}", "--dest", str(folder)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if not found:
        raise Unreachable(f"{shipment.package} {shipment.version}: {done.stderr[-200:]}")
    return found[0]


def configs(folder: Path, globs: Sequence[str]) -> list[Path]:
    """The configs of a tree, sorted; each once."""
    return sorted({path for each in globs for path in folder.glob(each) if path.is_file()})


def told(paths: Sequence[Path], readers: Sequence[str]) -> Iterator[Told]:
    """Lint each config alone; the scripts around them, which are thousands, are read once."""
    targets = TARGETS.readable()
    environment = environment_of(targets, readers=readers)
    sources: dict[tuple[Path, ...], OwnSource] = {}
    for path in paths:
        own = own_source([path], reach_of([path]))
        own = sources.setdefault(own.roots, own)
        found = lint_files([path], targets, environment, own=own)
        errors = [f"{e.id}: {e.message}" for e in found.diagnostics if e.severity == "error"]
        yield Told(path, tuple(errors), bool(found.run.documents))


def main(folders: Sequence[str]) -> None:
    """Print, for each shipment or folder, how many configs are read and every error."""
    if folders:
        endings = ("**/*.json", "**/*.yaml", "**/*.yml", "**/*.toml", "**/*.sh")
        groups = [(each, configs(Path(each), endings), ()) for each in folders]
    else:
        groups = [(s.package, configs(unpacked(s), s.globs), s.readers) for s in SHIPMENTS]
    for name, paths, readers in groups:
        _print(name, list(told(paths, readers)))


def _print(name: str, every: Sequence[Told]) -> None:
    bad = [each for each in every if each.errors]
    known = sum(each.is_known for each in every)
    print(f"{name}: {len(every)} configs, {known} recognised, {len(bad)} with an error")
    rules = Counter(error.partition(":")[0] for each in bad for error in each.errors)
    for rule, number in rules.most_common():
        print(f"  {number:4} {rule}")
    for each in bad:
        print(f"  {each.path}")
        for error in each.errors:
            print(f"      {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
