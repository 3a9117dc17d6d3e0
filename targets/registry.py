"""Every target by name; a target's tables are imported only when the target is looked up."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from packaging.version import Version

from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, shortened
from tunec.compiler.target import Target


def _tables(*names: str) -> dict[str, str]:
    """The modules with the tables of targets, as their `TARGET`, by name."""
    return {name: f"tunec.targets.{name.replace('-', '_')}.target" for name in names}


_MODULES: Final[Mapping[str, str]] = _tables(
    *("huggingface", "deepspeed", "simpletuner", "launch", "accelerate", "trl", "axolotl"),
    *("llamafactory", "ms-swift", "unsloth", "verl", "openrlhf", "nemo-automodel", "glm4"),
    *("minicpm-v", "llama-cookbook", "visualglm", "slurm", "kubeflow", "skypilot"),
)
"""The module with each target's table, in the order in which targets are listed."""

READERS: Final[Mapping[str, str]] = {
    **_tables("sd-scripts", "musubi-tuner", "ai-toolkit", "torchtune", "axolotl", "llamafactory"),
    **_tables("ms-swift", "unsloth", "verl", "openrlhf", "nemo-automodel"),
    "launchers": "tunec.targets.launch.flags",
}
"""Consumers whose files are recognised before the other targets' files; some are also written. Each
is a module with a `TARGET`."""

FURTHER: Final[Mapping[str, str]] = {"trl-methods": "tunec.targets.trl.methods"}
"""Dialects that are recognised after the targets and are never written: modules with a `TARGET`.
Each reads the files of a package for which a target writes; that target and those beside it decide
which release of the package goes with the others."""


class UnknownTarget(LookupError):
    """No target has the given name, or the target has no such version."""


@dataclass(frozen=True, slots=True)
class Targets(Mapping[str, Target]):
    """Targets by name, each imported when it is first looked up."""

    modules: Mapping[str, str] = field(default_factory=lambda: _MODULES)

    def __getitem__(self, name: str) -> Target:
        target: Target = import_module(self.modules[name]).TARGET
        return target

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def names(self) -> tuple[str, ...]:
        """Names of all targets, in the order in which they are listed."""
        return tuple(self.modules)

    def readable(self) -> Mapping[str, Target]:
        """Every consumer whose files can be read, by name: READERS, then targets, then FURTHER."""
        return Targets({**READERS, **self.modules, **FURTHER})

    def resolve(
        self, name: str, software: Mapping[str, str] | None = None
    ) -> tuple[Target, Version]:
        """The target and version that a name such as `huggingface@4.40` stands for.

        If the name has no version, the version is that of the target's package in `software`, or
        else the target's latest; `4.40` stands for its newest patch release. Raises UnknownTarget.
        `emit` checks whether the target supports the version.
        """
        key, asked, text = name.partition("@")
        target = self._named(key)
        wanted = text if asked else (software or {}).get(target.package) or target.latest
        try:
            return target, target.release(wanted)
        except ValueError:  # InvalidVersion is one; so is a number of too many digits
            raise UnknownTarget(
                f"`{shortened(wanted)}` is no version of {target.package}"
            ) from None

    def _named(self, key: str) -> Target:
        if key in self.modules:
            return self[key]
        if key in READERS or key in FURTHER:
            raise UnknownTarget(f"{key} is a dialect that is read, and never written")
        hint = did_you_mean(nearest(key, self.modules))
        known = f"there are {joined(self.modules, 'and')}"
        raise UnknownTarget(f"there is no target `{shortened(key)}`; {hint or known}")


TARGETS: Final = Targets()
"""Every target by name."""

REGISTRY: Final = TARGETS
"""`TARGETS`, under the name that the command line loads."""
