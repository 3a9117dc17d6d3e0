"""Options that several commands share, and the function that adds a command."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  not public


def new_command(
    commands: "Subparsers", name: str, summary: str, epilog: str
) -> argparse.ArgumentParser:
    """A subcommand whose help shows examples unchanged."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)
    return parser


class Once(argparse.Action):
    """Store a value, and refuse a second one, since the first would be lost silently."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value, as argparse asks."""
        if getattr(namespace, self.dest) != self.default:
            parser.error(f"argument {option_string}: given twice")
        setattr(namespace, self.dest, values)


def positive(text: str) -> int:
    """A whole number, at least 1."""
    is_number = text.isascii() and text.isdigit() and len(text) < _DIGITS
    number = int(text) if is_number else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not {text!r}")
    return number


_DIGITS = 19
"""A number with this many characters needs more than 63 bits."""


def seconds(text: str) -> float:
    """A length of time above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds, not {text!r}")
    return number


def place(text: str) -> str:
    """An output path; an empty one is an unset shell variable, not a directory."""
    if not text:
        raise argparse.ArgumentTypeError("expected a name, but it is empty")
    return text


def switch(parser: argparse._ActionsContainer, flag: str, what: str) -> None:
    """A flag without a value."""
    parser.add_argument(flag, action="store_true", help=what)


def output_option(parser: argparse.ArgumentParser, metavar: str, what: str) -> None:
    """`-o`, with a path that is not empty."""
    parser.add_argument("-o", "--output", type=place, metavar=metavar, help=what)


def format_option(parser: argparse.ArgumentParser) -> None:
    """`--format`."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format")


def intent_options(parser: argparse.ArgumentParser) -> None:
    """Options that change a spec: hardware, values, targets."""
    parser.add_argument(
        "--hardware",
        metavar="H",
        action=Once,
        help="plan for this hardware instead of the spec's: a catalogue name, a device with a "
        "count (a100-80g-x8), or a cluster file",
    )
    set_option(parser)
    target_option(parser)


def set_option(parser: argparse.ArgumentParser) -> None:
    """`--set`, and where the files of a spec may be."""
    repeatable(
        parser,
        "--set",
        "overrides",
        "PATH=VALUE",
        "override a value of the spec, such as data.sequence=1024 or pin.zero.stage=2",
    )
    outside_option(parser)


def outside_option(parser: argparse.ArgumentParser) -> None:
    """`--allow-outside`."""
    switch(parser, "--allow-outside", "let files name others that lie outside their project")


def settling_options(parser: argparse.ArgumentParser) -> None:
    """Options that set what files leave open, or that drop keys without a counterpart."""
    repeatable(
        parser,
        "--set",
        "overrides",
        "SLOT=VALUE",
        "set or override a value, such as batch.micro=2 (`tunec catalog slots`)",
    )
    repeatable(
        parser,
        "--without",
        "without",
        "KEY",
        "leave this key of the files out, although no slot stands for it",
    )


def target_option(parser: argparse.ArgumentParser) -> None:
    """`--target`."""
    repeatable(
        parser,
        "--target",
        "targets",
        "NAME[@VERSION]",
        "a consumer to plan or write for, such as deepspeed or huggingface@4.44",
    )


def policy_option(parser: argparse.ArgumentParser) -> None:
    """`--policy`."""
    what = "hold the plan to a team's rules; may be repeated"
    repeatable(parser, "--policy", "policies", "FILE", what)


def repeatable(
    parser: argparse.ArgumentParser, flag: str, attribute: str, metavar: str, what: str
) -> None:
    """A flag that may be repeated; its value is a list, empty if it is not given."""
    parser.add_argument(
        flag, dest=attribute, metavar=metavar, action="append", default=[], help=what
    )


def reading_options(parser: argparse.ArgumentParser) -> None:
    """Existing configs, and known facts about their run."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="configs and launch scripts")
    outside_option(parser)
    parser.add_argument("--hardware", metavar="H", help="hardware of the run, as in a spec")
    run_options(parser)


def run_options(parser: argparse.ArgumentParser) -> None:
    """Known facts about a run besides its files and its hardware."""
    parser.add_argument("--model", metavar="M", help="a catalogue model, or a config.json")
    parser.add_argument(
        "--world-size", type=int, metavar="N", help="number of processes of the run"
    )
    repeatable(
        parser,
        "--from",
        "readers",
        "NAME[@VERSION]",
        "the program that reads the files, such as deepspeed or huggingface@4.44",
    )
    repeatable(
        parser,
        "--software",
        "software",
        "NAME=VERSION",
        "an installed version, such as deepspeed=0.16, or its bounds: 'trl>=0.12,<0.20'",
    )
