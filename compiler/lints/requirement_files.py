"""What files of a repository require: names and ranges of releases, each with its line.

Nothing is run: a setup.py is read by its syntax tree, a Dockerfile and a README by their lines of
`pip install`. What cannot be read requires nothing.
"""

import ast
import configparser
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from tunec.compiler.frontend.python_origins import tree_of
from tunec.compiler.frontend.shell_words import BATCH_ENDINGS
from tunec.compiler.frontend.software import plain_name
from tunec.compiler.releases import ANY, Releases

_BOUND: Final = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[\w.*+!]+"
_REQUIREMENT: Final = re.compile(
    rf"""\s*(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*
    (?:\(?(?P<bounds>{_BOUND}(?:\s*,\s*{_BOUND})*)\)?|@\s*\S+@v?(?P<tag>\d[\w.]*)\b\S*)
    \s*(?:;(?P<marker>.*)|\\)?\s*(?:--hash.*)?""",
    re.VERBOSE,
)
_COMMIT: Final = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*@\s*)?
    (?:-e\s+)?git\+\S+/(?P<of>[\w.-]+?)(?:\.git)?@[0-9a-f]{7,40}(?:\#\S*)?\s*(?:;.*|\\)?""",
    re.VERBOSE,
)
"""A commit, which is of no release: of one that lies between two, or after the newest."""
_BY_GIT: Final = re.compile(
    r"""\s*(?:[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\])?\s*@\s*)?(?:-e\s+)?git\+\S+?github\.com[/:]
    (?P<owner>[\w.-]+)/(?P<of>[\w.-]+?)(?:\.git)?(?:@v?(?P<tag>\d[\w.]*)|@[\w./-]+)?
    (?:\#\S*)?\s*(?:;.*|\\)?""",
    re.VERBOSE,
)
_BY_PATH: Final = re.compile(r"\s*(?P<name>[A-Za-z0-9][\w.-]*)\s*@\s*file:(?P<path>\S+).*")
_BUILT: Final = re.compile(r"/(?:feedstock_root|croot|work|opt/conda|tmp)/")
"""Where conda builds the packages that it ships."""
_MAKERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("transformers", "trl", "peft", "accelerate"), ("huggingface",)),
    "axolotl": ("axolotl-ai-cloud", "openaccess-ai-collective"),
    "deepspeed": ("microsoft", "deepspeedai"),
    **dict.fromkeys(("llama-factory", "llamafactory"), ("hiyouga",)),
    "verl": ("volcengine", "verl-project"),
}
"""Whose repository each package is of: another one holds somebody's own version of it."""
_OF_REPOSITORY: Final = {"llama-factory": "llamafactory", "pytorch": "torch"}
_ELSEWHERE: Final = re.compile(r"darwin|macos|win32|windows", re.IGNORECASE)
_FOR_DEVELOPERS: Final = re.compile(
    r"(?<![a-z])(dev|develop|development|test|tests|testing|doc|docs|lint|quality|style)(?![a-z])"
)
"""Groups of requirements that no training needs."""
_OF_TRAINING: Final = re.compile(
    r"train|tun(?:e|ing)|sft|(?<![a-z])(?:all|full|gpu|cuda|main)(?![a-z])|deepspeed|accelerate"
)
_CONDA: Final = {"pytorch": "torch"}
HEAD: Final = Releases(">=0")
"""What stands at the head of a package's own repository when it is installed."""


class StatedRequirement(Struct, frozen=True):
    """One requirement, as it is written."""

    package: str
    """Its name, in lower case with dashes."""
    releases: Releases
    line: int
    is_own: bool = False
    """Whether it is somebody's own version of the package, of which no release is known."""

    @property
    def exact(self) -> str | None:
        """The one release that it names, if it names one."""
        text = self.releases.text
        is_one = text.startswith("==") and "," not in text and not text.endswith("*")
        return text.lstrip("=") if is_one else None

    @property
    def is_newest(self) -> bool:
        """Whether only the head of the package's repository is named, as if nothing were."""
        return self.releases == HEAD


def requirement(text: str, line: int) -> StatedRequirement | None:
    """A requirement as pip writes it; None where it is none, names no release, or is of another OS.

    One of a commit may be of any release. A comment begins after a blank, as in a requirements
    file.
    """
    text = re.sub(r"(^|\s)#.*", "", text)
    if (by_git := _BY_GIT.fullmatch(text)) and by_git["of"].lower() in _MAKERS:
        of = by_git["of"].lower()
        package = _OF_REPOSITORY.get(of, of)
        if by_git["owner"].lower() not in _MAKERS[of]:
            return StatedRequirement(package, ANY, line, is_own=True)
        if not _COMMIT.fullmatch(text):
            tag = by_git["tag"]
            return _stated(package, f"=={tag}" if tag else HEAD.text, line)
    if by_path := _BY_PATH.fullmatch(text):
        is_own = _BUILT.search(f"{by_path['path']}/") is None
        return StatedRequirement(plain_name(by_path["name"]), ANY, line, is_own=is_own)
    if commit := _COMMIT.fullmatch(text):
        of = commit["of"].lower()
        return StatedRequirement(
            plain_name(commit["name"] or _OF_REPOSITORY.get(of, of)), ANY, line
        )
    found = _REQUIREMENT.fullmatch(text)
    if found is None or _ELSEWHERE.search(found["marker"] or ""):
        return None
    return _stated(found["name"], found["bounds"] or f"=={found['tag']}", line)


def _stated(name: str, bounds: str, line: int) -> StatedRequirement | None:
    releases = Releases(re.sub(r"\s", "", bounds))
    try:
        releases.contains(Version("1"))
    except (InvalidVersion, ValueError):
        return None
    return StatedRequirement(plain_name(name), releases, line)


def listed(lines: Iterable[tuple[str, int]]) -> Iterator[StatedRequirement]:
    """The requirements among lines with their numbers."""
    found = (requirement(text, line) for text, line in lines)
    return (each for each in found if each is not None)


def _numbered(text: str) -> Iterator[tuple[str, int]]:
    return ((line, number) for number, line in enumerate(text.splitlines(), 1))


def _requirements(text: str) -> Iterator[StatedRequirement]:
    return listed(_numbered(text))


def included(text: str) -> Iterator[str]:
    """The files that a requirements file takes in: `-r base.txt`."""
    return (each[1] for each in re.finditer(r"(?m)^\s*(?:-r|-c|--requirement)[ =]+(\S+)", text))


def _line_of(text: str, word: str) -> int:
    return 1 + text[: max(text.find(word), 0)].count("\n")


# ── pyproject.toml, locks ────────────────────────────────────────────────────────────────────────


def _pyproject(text: str) -> Iterator[StatedRequirement]:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    project, poetry = _table(data, "project"), _table(data, "tool", "poetry")
    groups = {**_table(project, "optional-dependencies"), **_table(data, "dependency-groups")}
    for words in ((project.get("dependencies"),), _to_train(groups)):
        for word in (each for some in words for each in (some if isinstance(some, list) else ())):
            yield from listed([(word, _line_of(text, word))] if isinstance(word, str) else [])
    every = (poetry, *_to_train(_table(poetry, "group")))
    for name, value in (each for one in every for each in _table(one, "dependencies").items()):
        yield from _of_poetry(name, value, text)
    for own in (project, poetry):
        yield from _itself(own.get("name"), own.get("version"), text)


def _table(data: Any, *path: str) -> Mapping[str, Any]:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _to_train(groups: Mapping[str, Any]) -> Iterator[Any]:
    """The groups that are installed for training, by their names: others are extras indeed."""
    return (value for name, value in groups.items() if _OF_TRAINING.search(name.lower()))


def _itself(name: object, version: object, text: str) -> Iterator[StatedRequirement]:
    """The release of a program in its own repository."""
    if isinstance(name, str) and isinstance(version, str):
        found = _stated(name, f"=={version}", _line_of(text, version))
        yield from (found,) if found is not None else ()


def _of_poetry(name: str, value: Any, text: str) -> Iterator[StatedRequirement]:
    words = value if isinstance(value, list) else [value]
    at = re.search(rf"(?m)^\s*[\"']?{re.escape(name)}[\"']?\s*=", text)
    line = _line_of(text, at[0].strip() if at else name)
    for each in words:
        word = each.get("version") if isinstance(each, Mapping) else each
        found = _stated(name, _bounds_of_poetry(word), line) if isinstance(word, str) else None
        if found is not None:
            yield found


def _bounds_of_poetry(word: str) -> str:
    """`^4.40` is below the next major, `~4.40` below the next minor, a bare version itself."""
    parts = [each.strip() for each in word.split(",")]
    return ",".join(_bound_of_poetry(each) for each in parts)


def _bound_of_poetry(word: str) -> str:
    version = word.lstrip("^~= ")
    if word.startswith(("~=", "==")) or not re.fullmatch(r"[\^~=]?\s*\d[\w.]*", word):
        return word if word[:1] in "<>=!~" else f"=={word}"
    if word[0] not in "^~":
        return f"=={version}"
    numbers = [int(each) for each in re.findall(r"\d+", version)]
    first = next((at for at, each in enumerate(numbers) if each), len(numbers) - 1)
    kept = min(first if word[0] == "^" else 1, len(numbers) - 1)
    above = [*numbers[:kept], numbers[kept] + 1]
    return f">={version},<{'.'.join(map(str, above))}"


def _lock(text: str) -> Iterator[StatedRequirement]:
    """uv.lock and poetry.lock: a table for each package, which begins with name and version."""
    for each in re.finditer(r'(?m)^name = "([^"]+)"\nversion = "([^"]+)"', text):
        found = _stated(each[1], f"=={each[2]}", 1 + text.count("\n", 0, each.start()))
        if found is not None:
            yield found


# ── setup.py, setup.cfg ──────────────────────────────────────────────────────────────────────────


def _setup(text: str) -> Iterator[StatedRequirement]:
    tree = tree_of(text)
    if tree is None:
        return
    names = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    yield from listed(_words(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "setup":
            own = {each.arg: _constant(each.value, names) for each in node.keywords}
            yield from _itself(own.get("name"), own.get("version"), text)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _constant(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _words(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The texts of lists, but for those that are called as a group for developers is."""
    if isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value, each.lineno
    for child in _children(node):
        yield from _words(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        yield from (value for key, value in pairs if not _is_for_developers(key))
    elif isinstance(node, ast.Assign):
        yield from () if any(map(_is_for_developers, node.targets)) else (node.value,)
    else:
        yield from ast.iter_child_nodes(node)


def _is_for_developers(node: ast.expr | None) -> bool:
    """Whether a key, a variable or `extras["dev"]` names such a group."""
    inner = node.slice if isinstance(node, ast.Subscript) else node
    word = inner.value if isinstance(inner, ast.Constant) else getattr(inner, "id", "")
    return isinstance(word, str) and bool(_FOR_DEVELOPERS.search(word.lower()))


def _setup_cfg(text: str) -> Iterator[StatedRequirement]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    extras = dict(parser["options.extras_require"]) if "options.extras_require" in parser else {}
    blocks = (parser.get("options", "install_requires", fallback=""), *_to_train(extras))
    for word in (line.strip() for block in blocks for line in block.splitlines()):
        yield from listed([(word, _line_of(text, word))])


# ── environment.yml, Dockerfile, README ──────────────────────────────────────────────────────────

_OF_CONDA: Final = re.compile(r"\s*-\s*[\"']?(?:[\w-]+::)?(?P<word>[^\"'#]+?)[\"']?\s*(?:#.*)?")
_SINGLE: Final = re.compile(r"([\w.-]+)\s*=\s*(\d[\w.*]*)(?:=.*)?")


def _environment(text: str) -> Iterator[StatedRequirement]:
    """conda's `name=1.2` is any release that begins so; what stands below `pip:` is pip's."""
    for line, number in _numbered(text):
        found = _OF_CONDA.fullmatch(line)
        word = found["word"] if found else ""
        if single := _SINGLE.fullmatch(word):
            name = _CONDA.get(single[1].lower(), single[1])
            stated = _stated(name, f"=={single[2].removesuffix('.*')}.*", number)
        else:
            stated = requirement(word, number)
        if stated is not None:
            yield stated


_IN_TEXT: Final = re.compile(
    r"(?m)^[ \t>$!%-]*(?:`[^`\n]*)?(?:uv |\S*python\S* -m )?pip3? install\b.*"
)
_INSTALL: Final = re.compile(r"\bpip3?\s+install\s+(?P<words>(?:\\\n|[^`|&;\n])*)")


_CLONED: Final = re.compile(
    r"\bgit clone\s[^\n|&;]*https://(?P<url>[\w./-]+)[^\n|&;\\]*"
    r"(?:[\s\\;]|&&|RUN\b|(?:cd|WORKDIR)[ \t]+[^\s;&]+)*"
    r"\bgit checkout (?:tags/)?(?P<at>[0-9a-f]{7,40}|v?\d[\w.]*)(?![\w.-])"
)
"""A copy at a commit or a tag, which is then installed."""
_OF_A_TAG: Final = re.compile(
    r"\bgit clone(?=[^\n|&;]*\s(?:--branch[ =]|-b )(?P<at>v?\d[\w.]*))[^\n|&;]*https://(?P<url>[\w./-]+)"
)


def commands(text: str) -> Iterator[StatedRequirement]:
    """What lines of `pip install` name."""
    for command in _INSTALL.finditer(text):
        for word in re.finditer(r"[^\s\\]+", command["words"]):
            line = 1 + text.count("\n", 0, command.start("words") + word.start())
            yield from listed([(word[0].strip("\"'"), line)])
    yield from _clones(text)


def _clones(text: str) -> Iterator[StatedRequirement]:
    for clone in (*_CLONED.finditer(text), *_OF_A_TAG.finditer(text)):
        line = 1 + text.count("\n", 0, clone.start("at"))
        yield from listed([(f"git+https://{clone['url']}@{clone['at']}", line)])


def script(text: str) -> Iterator[StatedRequirement]:
    """What a script installs before it starts the program; its comments install nothing."""
    return commands(re.sub(r"(?m)^[ \t]*#.*", "", text))


def _read_me(text: str) -> Iterator[StatedRequirement]:
    """Commands that stand by themselves: in a line, or between backticks."""
    kept = {text.count("\n", 0, each.start()) for each in _IN_TEXT.finditer(text)}
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if at - 1 in kept and lines[at - 1].rstrip().endswith("\\"):
            kept.add(at)
        lines[at] = line if at in kept else ""
    yield from (*commands("\n".join(lines)), *_clones(text))


# ── which file is which ──────────────────────────────────────────────────────────────────────────

Read = Callable[[str], Iterator[StatedRequirement]]
_SCRIPT: Final = "|".join(map(re.escape, (".sh", *BATCH_ENDINGS)))
_KINDS: Final[tuple[tuple[str, Read], ...]] = (
    (r"uv\.lock|poetry\.lock", _lock),
    (r"requirements\.txt", _requirements),
    (r"(?:requirements|pip[-_]?freeze)[\w.-]*\.txt", _requirements),
    (r"pyproject\.toml", _pyproject),
    (r"setup\.py", _setup),
    (r"setup\.cfg", _setup_cfg),
    (r"environment\.ya?ml", _environment),
    (r"(?:[\w.-]*[_-])?(?:environment|conda|env)(?:[_-][\w.-]*)?\.ya?ml", _environment),
    (r"Dockerfile|Dockerfile\.\w+|\w+\.Dockerfile", commands),
    (rf"[\w.-]+(?:{_SCRIPT})|Makefile", script),
    (r"README(?:[\w.-]*)?\.(?:md|rst|txt)|README", _read_me),
)
"""Names of files, in the order in which they are believed."""


def rank_of(name: str) -> int | None:
    """How early a file is believed, by its name; None: it requires nothing."""
    is_for_others = name.startswith("requirements") and _FOR_DEVELOPERS.search(name.lower())
    ranks = (at for at, (form, _) in enumerate(_KINDS) if re.fullmatch(form, name))
    return None if is_for_others else next(ranks, None)


COMMANDS: Final = (rank_of("Dockerfile"), rank_of("install.sh"))
"""The ranks of recipes of images and of scripts, whose commands install."""


def stated(name: str, text: str) -> Iterator[StatedRequirement]:
    """Every requirement of a file that `rank_of` knows."""
    rank = rank_of(PurePath(name).name)
    read = _requirements if rank is None else _KINDS[rank][1]
    yield from read(text)
