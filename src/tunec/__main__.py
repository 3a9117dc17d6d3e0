"""`python -m tunec` and the `tunec` command."""

import gc
import os
import sys


def main() -> int:
    """Run the command line; return the process exit code.

    Imports make objects that stay: collecting garbage among them is time for nothing, so that it
    begins when the command does (`cli.main`). Plugins of pydantic are code of strangers, found by
    reading the metadata of everything that is installed.
    """
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from tunec import __version__
    from tunec.compiler.cli.main import run
    from tunec.targets.registry import REGISTRY

    return run(sys.argv[1:], REGISTRY, __version__)


if __name__ == "__main__":
    sys.exit(main())
