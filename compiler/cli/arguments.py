"""The grammar of the command line: what can be typed, and what `--help` teaches."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tunec.compiler.cli.options import (
    format_option,
    intent_options,
    new_command,
    place,
    policy_option,
    repeatable,
    set_option,
    settling_options,
    target_option,
)
from tunec.compiler.cli.proving_arguments import (
    add_diff,
    add_fleet,
    add_lint,
    add_rehearse,
    add_report,
    add_trace,
    add_translate,
    add_verify,
)

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers

_EPILOG: Final = """\
examples:
  tunec init --model llama-3.1-8b --hardware a100-80g-x8 > spec.yaml
  tunec plan spec.yaml
  tunec compile spec.yaml --target deepspeed
  tunec compile spec.yaml --target huggingface@4.44 --target launch -o out
  tunec explain spec.yaml zero.stage
  tunec explain E0701
  tunec verify spec.yaml --target huggingface@4.44 --target huggingface@5.23
  tunec translate train.sh ds_config.json --to accelerate --to huggingface -o out
  tunec diff old.yaml new.yaml
  tunec report spec.yaml -o report.html

exit codes: 0 fine, 1 the input is at fault, 2 wrong usage, 70 a bug in tunec
"""


def build_parser(version: str, only: str | None = None) -> argparse.ArgumentParser:
    """The grammar; each subcommand's name is in `command`.

    With the name of a command in `only`, the others are left out: they cost start-up time.
    """
    parser = argparse.ArgumentParser(
        prog="tunec",
        description="Compile one fine-tuning intent into consistent trainer configs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tunec {version}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, add in _commands().items():
        if only not in _commands() or name == only:
            add(commands)
    return parser


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; wrong usage ends it with what was probably meant."""
    first = arguments[0] if arguments else ""
    if first and not first.startswith("-") and first not in _commands():
        parser.error(f"there is no command {first!r}{_near(first, _commands())}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        import re

        command: argparse.ArgumentParser = options.parser
        flags = re.findall(r"--[a-z-]+", command.format_help())
        command.error(f"there is no argument {unknown[0]!r} here{_near(unknown[0], flags)}")
    return options


def _near(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.partition("=")[0], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _commands() -> dict[str, Callable[["Subparsers"], None]]:
    """What adds each command, in the order in which help lists them."""
    return {
        "compile": _compile,
        "plan": _plan,
        "explain": _explain,
        "lint": add_lint,
        "translate": add_translate,
        "report": add_report,
        "diff": add_diff,
        "fleet": add_fleet,
        "verify": add_verify,
        "rehearse": add_rehearse,
        "trace": add_trace,
        "probe": _probe,
        "catalog": _catalog,
        "schema": _schema,
        "init": _init,
        "completion": _completion,
    }


def _compile(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "compile",
        "write the files of one or more targets",
        "One file and no -o goes to stdout. With -o, files go to DIR/TARGET/FILE; several specs\n"
        "and several --hardware have directories of their own: DIR/SPEC/HARDWARE/TARGET/FILE.\n"
        "Each is a bundle: `bash DIR/run.sh`, beside the targets, starts it from anywhere.\n"
        "Either every file is written or none. A spec may be `-`: what another program writes.",
    )
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="spec files")
    what = "compile for this hardware instead; may be repeated"
    repeatable(parser, "--hardware", "hardware", "H", what)
    set_option(parser)
    target_option(parser)
    policy_option(parser)
    parser.add_argument("-o", "--output", type=place, metavar="DIR", help="directory to write to")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if what is in DIR differs"
    )
    format_option(parser)


def _plan(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "plan",
        "show on one screen whether a run fits, what was decided and why, and how long it takes",
        "`tunec explain SPEC SLOT` goes deeper into one decision; --all gives every slot with its\n"
        "value and the reason, and the accounts of memory and time term by term.",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file")
    parser.add_argument("--all", action="store_true", help="every slot, and the whole accounts")
    intent_options(parser)
    policy_option(parser)
    format_option(parser)
    parser.add_argument(
        "--emit", choices=("plan",), help="print the slots decided so far, with --after"
    )
    parser.add_argument("--after", metavar="PASS", help="stop showing after this pass")


def _explain(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "explain",
        "say why a value is what it is, or what a diagnostic means",
        "examples:\n  tunec explain spec.yaml batch.micro\n  tunec explain E0701",
    )
    parser.add_argument("what", metavar="SPEC|CODE", help="a spec file, or a diagnostic's code")
    parser.add_argument("slot", metavar="SLOT", nargs="?", help="a slot, such as zero.stage")
    intent_options(parser)
    format_option(parser)


def _probe(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "probe",
        "write a hardware profile of this machine",
        "Reads nvidia-smi, the kernel and this Python's packages; needs no torch.\n"
        "example:\n  tunec probe -o here.yaml && tunec plan spec.yaml --hardware here.yaml",
    )
    parser.add_argument("--name", default="", help="the cluster's name; the host's if not given")
    parser.add_argument(
        "-o", "--output", type=place, metavar="FILE", help="file to write; else to stdout"
    )
    format_option(parser)


def _catalog(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "catalog",
        "list what is known: devices, clusters, models, targets, slots, passes, codes, rules",
        "examples:\n  tunec catalog devices\n  tunec catalog models glm-4v-9b",
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="what to list; all kinds if absent")
    parser.add_argument("name", metavar="NAME", nargs="?", help="one entry, whole, with sources")
    format_option(parser)


def _schema(commands: "Subparsers") -> None:
    parser = new_command(
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
        help="spec (default), fleet, policy, cluster, device, model-card",
    )
    parser.add_argument(
        "-o", "--output", type=place, metavar="FILE", help="file to write; else to stdout"
    )
    format_option(parser)


def _init(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "init",
        "begin a spec: a new one, or that of config files that are there",
        "With --from, config files and launch scripts of a run that exists become a spec, as\n"
        "`tunec translate --to spec` says in full; --model, --hardware and --method then say what\n"
        "the files do not, --set and --without settle the rest.\n"
        "\n"
        "examples:\n"
        "  tunec init -o spec.yaml  # with spec.schema.json beside it, for editors\n"
        "  tunec init > spec.yaml\n"
        "  tunec init --from train.sh ds_config.json --hardware a100-80g-x8 -o spec.yaml",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=place,
        metavar="FILE",
        help="file to write, with the schema that it names beside it; else to stdout",
    )
    parser.add_argument(
        "--from", dest="files", metavar="FILE", nargs="+", help="configs that are there already"
    )
    parser.add_argument("--model", help="a catalogue model; llama-3.2-3b for a new spec")
    parser.add_argument("--hardware", help="a catalogue name; a100-80g-x1 for a new spec")
    parser.add_argument(
        "--method",
        choices=("full", "lora", "qlora", "int8_lora"),
        help="what to train; lora for a new spec",
    )
    settling_options(parser)
    format_option(parser)


def _completion(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "completion",
        "print a shell's completion script",
        "example:\n  tunec completion bash > ~/.local/share/bash-completion/completions/tunec",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="which shell")
    format_option(parser)
