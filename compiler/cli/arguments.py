"""The grammar of the command line: what can be typed, and what `--help` teaches."""

import argparse
from typing import TYPE_CHECKING, Final

_EPILOG: Final = """\
examples:
  tunec init --model llama-3.1-8b --hardware a100-80g-x8 > spec.yaml
  tunec plan spec.yaml
  tunec compile spec.yaml --target deepspeed
  tunec compile spec.yaml --target huggingface@4.44 --target launch -o out
  tunec explain spec.yaml zero.stage
  tunec explain E0701
  tunec diff old.yaml new.yaml

exit codes: 0 fine, 1 the input is at fault, 2 wrong usage, 70 a bug in tunec
"""


def build_parser(version: str) -> argparse.ArgumentParser:
    """The whole grammar; each subcommand's name is in `command`."""
    parser = argparse.ArgumentParser(
        prog="tunec",
        description="Compile one fine-tuning intent into consistent trainer configs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tunec {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_compile, _plan, _explain, _diff, _catalog, _schema, _init, _completion):
        add(commands)
    return parser


if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001  argparse names no public type


def _new(commands: "Subparsers", name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="for people, or for machines"
    )


def _intent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hardware",
        metavar="H",
        help="plan for this hardware instead: a catalogue name, a device with a count "
        "(a100-80g-x8), or a cluster file",
    )
    _set(parser)
    _target(parser)


def _set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="overrule a value of the spec, such as data.sequence=1024 or pin.zero.stage=2",
    )


def _target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        dest="targets",
        metavar="NAME[@VERSION]",
        action="append",
        default=[],
        help="a consumer to plan or write for, such as deepspeed or huggingface@4.44",
    )


def _compile(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "compile",
        "write the files of one or more targets",
        "One file and no -o goes to stdout. With -o, files go to DIR/TARGET/FILE, or\n"
        "DIR/SPEC/TARGET/FILE for several specs. Either every file is written or none.",
    )
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="spec files")
    _intent(parser)
    parser.add_argument("-o", "--output", metavar="DIR", help="directory to write to")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if what is in DIR differs"
    )
    _format(parser)


def _plan(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "plan",
        "show every decision, the memory account and the time account",
        "Each line gives a slot, its value and the reason; `tunec explain SPEC SLOT` goes deeper.",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file")
    _intent(parser)
    _format(parser)
    parser.add_argument(
        "--emit", choices=("plan",), help="print the slots decided so far, with --after"
    )
    parser.add_argument("--after", metavar="PASS", help="stop showing after this pass")


def _explain(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "explain",
        "say why a value is what it is, or what a diagnostic means",
        "examples:\n  tunec explain spec.yaml batch.micro\n  tunec explain E0701",
    )
    parser.add_argument("what", metavar="SPEC|CODE", help="a spec file, or a diagnostic's code")
    parser.add_argument("slot", metavar="SLOT", nargs="?", help="a slot, such as zero.stage")
    _intent(parser)
    _format(parser)


def _diff(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "diff",
        "say what a change of specs does: to intent, decisions, clusters and files",
        "examples:\n"
        "  tunec diff old.yaml new.yaml --hardware a100-40g-x8 --hardware h100-sxm-x8\n"
        "  tunec diff main.. specs --fail-on breaking\n"
        "  tunec diff main..HEAD specs --format markdown",
    )
    parser.add_argument("old", metavar="OLD", help="a spec, a directory, or revisions: main..HEAD")
    parser.add_argument(
        "new", metavar="NEW", nargs="?", help="the other; with revisions, where to look for specs"
    )
    parser.add_argument(
        "--hardware",
        metavar="H",
        action="append",
        help="compare on this hardware; may be repeated; each spec's own if absent",
    )
    _set(parser)
    _target(parser)
    parser.add_argument(
        "--fail-on",
        choices=("breaking", "performance", "cosmetic"),
        help="exit with 1 for changes that are this grave or graver",
    )
    parser.add_argument(
        "--files", action="store_true", help="show what changes in the files of the targets"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "markdown"),
        default="text",
        help="for people, for machines, or for a pull request",
    )


def _catalog(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "catalog",
        "list what is known: devices, clusters, models, targets, slots, passes, codes",
        "examples:\n  tunec catalog devices\n  tunec catalog models glm-4v-9b",
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="what to list; all kinds if absent")
    parser.add_argument("name", metavar="NAME", nargs="?", help="one entry, whole, with sources")
    _format(parser)


def _schema(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "schema",
        "print a JSON Schema, for editors and validators",
        "Put `# yaml-language-server: $schema=PATH` at the top of a spec to have it completed.",
    )
    parser.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        default="spec",
        help="spec (default), cluster, device, model-card",
    )


def _init(commands: "Subparsers") -> None:
    parser = _new(commands, "init", "print a starting spec", "Redirect it: tunec init > spec.yaml")
    parser.add_argument("--model", default="llama-3.2-3b", help="a catalogue model")
    parser.add_argument("--hardware", default="a100-80g-x1", help="a catalogue name")
    parser.add_argument(
        "--method",
        default="lora",
        choices=("full", "lora", "qlora", "int8_lora"),
        help="what to train",
    )


def _completion(commands: "Subparsers") -> None:
    parser = _new(
        commands,
        "completion",
        "print a shell's completion script",
        "example:\n  tunec completion bash > ~/.local/share/bash-completion/completions/tunec",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")
