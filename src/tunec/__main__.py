"""`python -m tunec` and the `tunec` command."""

import sys


def main() -> int:
    """Run the command line; return the process exit code."""
    from tunec.compiler.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
