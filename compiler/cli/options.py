"""Options that several commands have, and how a command is added."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  not public


def new_command(
    commands: "Subparsers", name: str, summary: str, epilog: str
) -> argparse.ArgumentParser:
    """A subcommand whose help shows examples as they are written."""
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def format_option(parser: argparse.ArgumentParser) -> None:
    """`--format`."""
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="for people, or for machines"
    )


def intent_options(parser: argparse.ArgumentParser) -> None:
    """What changes a spec from outside: hardware, values, targets."""
    parser.add_argument(
        "--hardware",
        metavar="H",
        help="plan for this hardware instead: a catalogue name, a device with a count "
        "(a100-80g-x8), or a cluster file",
    )
    set_option(parser)
    target_option(parser)


def set_option(parser: argparse.ArgumentParser) -> None:
    """`--set`."""
    _repeatable(
        parser,
        "--set",
        "overrides",
        "PATH=VALUE",
        "overrule a value of the spec, such as data.sequence=1024 or pin.zero.stage=2",
    )


def target_option(parser: argparse.ArgumentParser) -> None:
    """`--target`."""
    _repeatable(
        parser,
        "--target",
        "targets",
        "NAME[@VERSION]",
        "a consumer to plan or write for, such as deepspeed or huggingface@4.44",
    )


def policy_option(parser: argparse.ArgumentParser) -> None:
    """`--policy`."""
    what = "hold the plan to a team's rules; may be repeated"
    _repeatable(parser, "--policy", "policies", "FILE", what)


def _repeatable(
    parser: argparse.ArgumentParser, flag: str, attribute: str, metavar: str, what: str
) -> None:
    """A flag that may be given often; its values are a list, empty where it is not given."""
    parser.add_argument(
        flag, dest=attribute, metavar=metavar, action="append", default=[], help=what
    )
