"""What a job runs on each node before it starts the processes, and the job's name."""

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.local_paths import SEARCHED, own_modules
from tunec.compiler.start_commands import STARTER
from tunec.schemas.data_paths import is_local
from tunec.schemas.torch_builds import BUILD_TOOLS, BUILT_ON_TORCH, builds_of, wheel
from tunec.targets.rows import has_images
from tunec.targets.words import words_of

_UNSAFE: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 40


def dns_label(name: str) -> str:
    """A label of RFC 1035 made from a name, short enough for the suffixes of pods and machines."""
    label = _UNSAFE.sub("-", name.lower()).strip("-")[:_LONGEST].strip("-")
    return label if label[:1].isalpha() else f"run-{label}".strip("-")


_SETUP: Final = re.compile(r"^setup\(\) \{\n((?:  .*\n)*)\}$", re.MULTILINE)
_PIP: Final = re.compile(r"^pip install (?:--[a-z-]+ )*((?!torch==)[^-\s][^\n]*)$", re.MULTILINE)
_TORCH: Final = re.compile(r"^pip install (?:--[a-z-]+ )*torch==(\S+)", re.MULTILINE)
_INK: Final = re.compile(r"[^\n]")
_FILES: Final = (".py", ".sh")


# ── the user's own lines ─────────────────────────────────────────────────────────────────────────


def setup_text(lines: tuple[str, ...]) -> str:
    """A shell function that runs the lines; empty without lines."""
    return "".join(("setup() {\n", *(f"  {line}\n" for line in lines), "}\n")) if lines else ""


def called(lines: tuple[str, ...]) -> str:
    """The call of that function, without `set -u`, as the lines may read unset variables."""
    return "set +u\nsetup\nset -u\n" if lines else ""


def setup_lines(text: str) -> tuple[str, ...]:
    """The lines of the function in a text."""
    found = _SETUP.search(text)
    return tuple(line[2:] for line in found[1].splitlines()) if found else ()


def without_setup(text: str) -> str:
    """The text with the user's lines blanked, so that they are not read as tunec's own commands."""
    return _SETUP.sub(lambda found: _INK.sub(" ", found[0]), text)


# ── what is installed ────────────────────────────────────────────────────────────────────────────


def torch_line(plan: Plan) -> str:
    """The command that installs torch, from the index of its build; empty if no wheel is known.

    torchvision is of the same build, and keeps torch at its release: a package that later requires
    torchvision, as llamafactory 0.9.5 does, would install the newest, and with that another torch.
    """
    if plan.job.torch is None:
        return ""
    named, index = wheel(plan.job.torch)
    return f"pip install --quiet {named} torchvision{f' --index-url {index}' if index else ''}\n"


def packages_line(plan: Plan, flags: str = "--quiet ") -> str:
    """The commands that install all other packages; empty without packages."""
    lines = (_line(flags, *group) for group in groupby(plan.job.packages, is_built_on_torch))
    return "".join(lines)


def _line(flags: str, is_built: bool, packages: Iterable[str]) -> str:
    named = " ".join(map(shlex.quote, packages))
    if not is_built:
        return f"pip install {flags}{named}\n"
    return f"pip install {flags}{BUILD_TOOLS}\npip install {flags}--no-build-isolation {named}\n"


def is_built_on_torch(package: str) -> bool:
    """Whether pip compiles a package against the installed torch."""
    return package.partition("=")[0] in BUILT_ON_TORCH


def installed_torch(text: str) -> str | None:
    """The release and build of torch that a text installs; None: none, or no known build."""
    found = _TORCH.search(text)
    if found is None:
        return None
    if "+" in found[1]:
        return found[1]
    usual = next((each for each in builds_of(found[1]) if each.is_usual), None)
    return f"{found[1]}+{usual.name}" if usual else None


def installed_packages(text: str) -> tuple[str, ...]:
    """The other packages that a text installs."""
    lines = (found[1] for found in _PIP.finditer(text) if found[1] != BUILD_TOOLS)
    return tuple(word for line in lines for word in words_of(line))


# ── what it reads that is not in the bundle ──────────────────────────────────────────────────────


_BUNDLED: Final = re.compile(rf"\w[\w-]*/{re.escape(STARTER)}")


def local_files(plan: Plan) -> tuple[str, ...]:
    """The paths of the user's own files that a run reads, relative to where it starts."""
    words = words_of(plan.launch.script)
    script = [_whole(w) for w in words[:1] if w.endswith(_FILES) and not _BUNDLED.fullmatch(w)]
    named = (each for each in (*training_data(plan), plan.data.evaluation) if each)
    data = [_whole(each) if has_images(plan) else each for each in named if is_local(each)]
    beside = [word for word in words[1:] if word.startswith("../")]
    rewards = _reward_files(plan)
    model = [plan.model.path] if plan.model.path.startswith((".", "/", "~")) else []
    return tuple(dict.fromkeys((*script, *model, *data, *beside, *rewards)))


def _whole(path: str) -> str:
    """The folder of a file, whose neighbours it may import; beside the spec the file itself."""
    folder, name = posixpath.split(path)
    is_beside = set(folder.split("/")) <= {"", ".", "..", "~"}
    return folder if posixpath.splitext(name)[1] and not is_beside else path


def _reward_files(plan: Plan) -> Iterator[str]:
    """The files of rewards, `reward.py:score`; for import paths the module, or its package."""
    for each in plan.objective.rewards:
        if ".py:" in each:
            yield each.rpartition(":")[0]
    base = dict(plan.launch.environment).get(SEARCHED, "").partition(":")[0]
    for each in own_modules(plan) if base else ():
        name, *inner = each.split(".")
        yield f"{base}/{name}.py" if len(inner) == 1 else f"{base}/{name}"
