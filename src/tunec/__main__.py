"""`python -m tunec` and the `tunec` command."""

import atexit
import gc
import os
import sys
from types import ModuleType
from typing import NoReturn


def main() -> int:
    """Run the command line; return the process exit code.

    Imports make objects that stay: collecting garbage among them is time for nothing, so that it
    begins when the command does (`cli.main`).
    """
    gc.disable()
    _without_plugins()
    from tunec import __version__
    from tunec.compiler.cli.main import run
    from tunec.targets.registry import REGISTRY

    return run(sys.argv[1:], REGISTRY, __version__)


def leave() -> NoReturn:
    """Run the command line and end the process with its exit code, at once.

    An interpreter that ends takes all modules and objects apart one by one, a twelfth of the time
    of a short command, for memory that the system takes back anyhow. What was registered for the
    end still runs; where a thread is at work or an output cannot be written, Python ends as usual.
    """
    try:
        code = main()
    except KeyboardInterrupt:
        os._exit(130)  # while modules are imported; `cli.main` minds the rest
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()  # noqa: SLF001  what `Py_FinalizeEx` calls at the same place
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code)


def _without_plugins() -> None:
    """Let pydantic look for no plugins: code of strangers, found in the metadata of all packages.

    The variable forbids them, but their finder would still be imported, which with all that reads
    metadata is a twentieth of the time to start. pydantic 2.10 to 2.14 takes one name from it
    (plugin/_schema_validator.py `create_schema_validator`).
    """
    from pydantic.version import VERSION

    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if int(VERSION.split(".")[1]) <= 14:
        finder = ModuleType("pydantic.plugin._loader")
        finder.get_plugins = tuple  # type: ignore[attr-defined]
        sys.modules.setdefault(finder.__name__, finder)


if __name__ == "__main__":
    leave()
