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
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="overrule a value of the spec, such as data.sequence=1024 or pin.zero.stage=2",
    )


def target_option(parser: argparse.ArgumentParser) -> None:
    """`--target`."""
    parser.add_argument(
        "--target",
        dest="targets",
        metavar="NAME[@VERSION]",
        action="append",
        default=[],
        help="a consumer to plan or write for, such as deepspeed or huggingface@4.44",
    )


def policy_option(parser: argparse.ArgumentParser) -> None:
    """`--policy`."""
    parser.add_argument(
        "--policy",
        dest="policies",
        metavar="FILE",
        action="append",
        default=[],
        help="hold the plan to a team's rules; may be repeated",
    )
