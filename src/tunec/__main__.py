"""`python -m tunec` and the `tunec` command."""

import sys


def main() -> int:
    """Run the command line; return the process exit code."""
    from tunec import __version__
    from tunec.compiler.cli.main import run
    from tunec.targets.registry import REGISTRY

    return run(sys.argv[1:], REGISTRY, __version__)


if __name__ == "__main__":
    sys.exit(main())
