"""Local paths of a plan, seen from the place where its run starts.

In a spec they are relative to the spec's directory. A run starts in the root of its bundle or in a
folder of it. A text's form shows whether it is a local path; no disk is read.
"""

import posixpath
import shlex
from collections.abc import Container, Mapping
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.derived_cards import KEY
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.frontend.names import is_written_as_path
from tunec.compiler.ir.plan import Plan
from tunec.schemas.data_paths import BUILDERS, data_kind
from tunec.schemas.spec import InlineModel, Spec
from tunec.schemas.terms import PLAIN_TEMPLATE

OF_SCRIPTS: Final = frozenset({*BUILDERS, ".py", ".sh", ".yaml", ".yml", ".toml"})
"""Suffixes of files that can be a script or a script's argument."""


SEARCHED: Final = "PYTHONPATH"
"""The variable for Python's import path (Python 3.11, Command line and environment)."""


class View(Struct, frozen=True):
    """Directories as a program sees them from its working directory."""

    spec: str = ".."
    """The spec's directory, with slashes."""
    root: str = "."
    """The root of the bundle."""
    elsewhere: bool = False
    """Whether the program does not inherit the environment in which run.sh is started."""

    def from_folder(self, name: str) -> "View":
        """The view from a folder in the bundle's root."""
        above = "../" * len(name.split("/"))
        spec, root = (posixpath.normpath(f"{above}{each}") for each in (self.spec, self.root))
        return View(spec, root, self.elsewhere)


def placed(
    plan: Plan, loaded: Loaded, view: View, bundled: Container[str], media: str = ""
) -> Plan:
    """The plan with its local paths as `view` has them.

    `bundled` are the paths of the bundle's files below its root; a script argument with such a name
    means that file. Absolute paths and paths below a home directory stay. `media` is the variable
    by which the trainer finds images that samples name by relative paths.
    """
    spec = loaded.spec
    if spec is None:
        return plan
    return plan.with_values(
        {
            "model.path": _model(plan.model.path, spec.model, loaded, view),
            "ppo.critic": _model(plan.ppo.critic, spec.critic or "", loaded, view),
            "data.train": _data(plan, plan.data.train, view),
            "data.more": tuple(_data(plan, each, view) for each in plan.data.more),
            "data.references": tuple(_data(plan, each, view) for each in plan.data.references),
            "data.evaluation": plan.data.evaluation and _data(plan, plan.data.evaluation, view),
            "data.chat_template": _template(plan.data.chat_template, view),
            "objective.rewards": tuple(_reward(each, view) for each in plan.objective.rewards),
            "runtime.output": _output(plan, spec, view),
            "launch.script": _script(plan, spec, view, bundled),
            "launch.environment": tuple(_environment(plan, view, media).items()),
        }
    )


def own_modules(plan: Plan) -> tuple[str, ...]:
    """Import paths of reward functions that lie beside the spec and in no package of the job."""
    installed = {each.partition("=")[0].replace("-", "_") for each in plan.job.packages}
    named = (each for each in plan.objective.rewards if "." in each and ":" not in each)
    return tuple(each for each in named if each.partition(".")[0] not in installed)


def _environment(plan: Plan, view: View, media: str) -> dict[str, str]:
    """With the directory of the spec where a program elsewhere imports modules from it."""
    found = dict(plan.launch.environment)
    if media and plan.data.images and data_kind(plan.data.train) == "file":
        found[media] = posixpath.dirname(_moved(plan.data.train, view.spec)) or "."
    if view.elsewhere and own_modules(plan):
        found[SEARCHED] = ":".join(filter(None, (view.spec, found.get(SEARCHED))))
    return found


def _moved(path: str, base: str) -> str:
    """A path relative to `base`, rewritten for a place from which `base` is seen."""
    return path if path.startswith(("/", "~")) else posixpath.normpath(posixpath.join(base, path))


def _reward(name: str, view: View) -> str:
    """A function in a file, `reward.py:score`, with its path; other forms stay."""
    path, _, function = name.rpartition(":")
    return f"{_moved(path, view.spec)}:{function}" if path.endswith(".py") else name


def _directory(path: str, base: str) -> str:
    """A path as `_moved` gives it, with ./ if it could be taken for a name on the Hub."""
    found = _moved(path, base)
    return found if found.startswith((".", "/", "~")) else f"./{found}"


def _model(path: str, named: str | InlineModel, loaded: Loaded, view: View) -> str:
    """The path of a directory of weights; models of the catalogue and the Hub keep their names."""
    if not path:
        return path
    if isinstance(named, InlineModel):
        return _directory(named.path, view.spec) if named.path.startswith(".") else path
    if not is_written_as_path(named) and path == named:
        return named
    followed = loaded.followed.get(named)
    if followed is None and not is_written_as_path(named):
        return path
    if isinstance(followed, Mapping) and KEY in followed and followed.get("model"):
        return path  # a derived card names the repository of the weights
    is_config = PurePosixPath(named).suffix == ".json"
    return _directory(posixpath.dirname(named) if is_config else named, view.spec)


def _data(plan: Plan, path: str, view: View) -> str:
    """The path of training data; trainers of diffusion models read a directory in any case."""
    name, colon, function = path.partition(":")
    if name.endswith(".py"):  # a script that makes the data, and the function that is called
        return _moved(name, view.spec) + colon + function
    if data_kind(path) == "file":
        return _moved(path, view.spec)
    is_directory = data_kind(path) == "directory" or plan.model.kind == "diffusion"
    return _directory(path, view.spec) if is_directory else path


def _template(template: str | None, view: View) -> str | None:
    """The path of the user's own template; the plain one is a file of each target."""
    if template is None or template == PLAIN_TEMPLATE:
        return template
    return _moved(template, view.spec)


def _output(plan: Plan, spec: Spec, view: View) -> str:
    """The output folder: the spec's, or one in the bundle, so that no two runs share a folder."""
    is_given = "output" in spec.train.model_fields_set
    return _moved(plan.runtime.output, view.spec if is_given else view.root)


def _script(plan: Plan, spec: Spec, view: View, bundled: Container[str]) -> str:
    """The user's script and the files among its arguments; a trainer's own program stays."""
    if spec.run.script is None:
        return plan.launch.script
    words = (spec.run.script, *spec.run.arguments)
    if plan.launch.script != shlex.join(words):  # a pin says it
        return plan.launch.script
    return shlex.join(_word(each, view, bundled) for each in words)


def _word(word: str, view: View, bundled: Container[str]) -> str:
    if word in bundled:
        return _moved(word, view.root)
    is_file = PurePosixPath(word).suffix.lower() in OF_SCRIPTS and "://" not in word
    return _moved(word, view.spec) if is_file or word.startswith(("./", "../")) else word
