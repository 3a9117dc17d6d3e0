"""The grammar of the command line: commands, arguments, and the texts of `--help`."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tunec.compiler.cli.options import (
    format_option,
    intent_options,
    new_command,
    output_option,
    outside_option,
    place,
    policy_option,
    repeatable,
    set_option,
    settling_options,
    switch,
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
from tunec.compiler.cli.run_arguments import add_calibrate, add_choose, add_data, add_resume

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

exit codes: 0 success, 1 fault in the input, 2 wrong usage, 70 bug in tunec
"""


def build_parser(version: str, only: str | None = None) -> argparse.ArgumentParser:
    """The parser; the subcommand's name is in `command`.

    If `only` names a command, the others are left out, since they cost start-up time.
    """
    parser = argparse.ArgumentParser(
        prog="tunec",
        description="Compile one fine-tuning spec into consistent trainer configs.",
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
    """The options of a command line; wrong usage ends the command with a suggestion."""
    first = arguments[0] if arguments else ""
    if first and not first.startswith("-") and first not in _commands():
        parser.error(f"there is no command {first!r}{_near(first, _commands())}")
    options, unknown = parser.parse_known_args(arguments)
    if any(not word.startswith("-") for word in unknown):
        # argparse fills what may be left out before it comes to the options: `SPEC --all SLOT`
        again = argparse.Namespace(command=options.command)
        options, unknown = options.parser.parse_known_intermixed_args(arguments[1:], again)
    if unknown:
        import re

        command: argparse.ArgumentParser = options.parser
        text = command.format_help()
        flags = re.findall(r"--[a-z-]+", text)
        takers = re.findall(r"^  .*?(--(?:spec|output) (?:SPEC|FILE|DIR))\b", text, re.MULTILINE)
        near = _near(unknown[0], flags) or _second(unknown[0], arguments, command)
        near = near or _placed(unknown[0], takers)
        command.error(f"there is no argument {unknown[0]!r} here{near}")
    return options


def _near(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.partition("=")[0], list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _second(word: str, arguments: Sequence[str], command: argparse.ArgumentParser) -> str:
    """Which option takes one word, where this one follows that word: `--within 12 hours`."""
    at = arguments.index(word) if word in arguments else 0
    flag = arguments[at - 2] if at >= 2 else ""
    known = command._actions  # noqa: SLF001  not public
    taking = [each for each in known if flag in each.option_strings]
    if word.startswith("-") or not taking or taking[0].nargs is not None:
        return ""
    return f"; {flag} takes one word: {taking[0].help}"


def _placed(word: str, takers: Sequence[str]) -> str:
    """The options of a command that take files, if a word may be one that stands alone."""
    if word.startswith("-") or not takers:
        return ""
    return f"; a file is given by {' or '.join(takers)}"


def _commands() -> dict[str, Callable[["Subparsers"], None]]:
    """The function that adds each command, in the order of the help text."""
    return {
        "compile": _compile,
        "plan": _plan,
        "choose": add_choose,
        "data": add_data,
        "resume": add_resume,
        "explain": _explain,
        "lint": add_lint,
        "translate": add_translate,
        "report": add_report,
        "diff": add_diff,
        "fleet": add_fleet,
        "verify": add_verify,
        "rehearse": add_rehearse,
        "trace": add_trace,
        "calibrate": add_calibrate,
        "card": _card,
        "probe": _probe,
        "catalog": _catalog,
        "schema": _schema,
        "lsp": _lsp,
        "mcp": _mcp,
        "init": _init,
        "completion": _completion,
    }


def _compile(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "compile",
        "write the config files of one or more targets",
        "Without -o, a single file goes to stdout. With -o, files go to DIR/TARGET/FILE; with\n"
        "several specs or several --hardware, to DIR/SPEC/HARDWARE/TARGET/FILE. Each directory is\n"
        "a bundle: `bash DIR/run.sh` starts it from anywhere. Either all files are written or\n"
        "none. A spec of `-` is read from stdin.",
    )
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="spec files")
    what = "compile for this hardware instead; may be repeated"
    repeatable(parser, "--hardware", "hardware", "H", what)
    set_option(parser)
    target_option(parser)
    policy_option(parser)
    output_option(parser, "DIR", "output directory")
    switch(parser, "--check", "write nothing; fail if the files in DIR differ")
    switch(
        parser,
        "--smoke",
        "write beside each bundle a short one (DIR/smoke): two steps on the longest samples, "
        "an evaluation, a checkpoint, a resume",
    )
    format_option(parser)


def _plan(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "plan",
        "show whether a run fits, what was decided and why, and how long it takes",
        "`tunec explain SPEC SLOT` goes deeper into one decision. --all shows every slot with its\n"
        "value and reason, and the accounts of memory and time term by term.",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file")
    switch(parser, "--all", "show every slot, and the full accounts of memory and time")
    switch(
        parser,
        "--trace",
        "run the plan's real model without weights, and show by how much its memory differs",
    )
    intent_options(parser)
    policy_option(parser)
    format_option(parser)
    parser.add_argument(
        "--emit", choices=("plan",), help="print the decided slots; use with --after"
    )
    parser.add_argument("--after", metavar="PASS", help="stop after this pass")


def _explain(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "explain",
        "explain why a value was chosen, or what a diagnostic means",
        "examples:\n  tunec explain spec.yaml batch.micro\n  tunec explain E0701",
    )
    parser.add_argument("what", metavar="SPEC|CODE", help="a spec file, or a diagnostic's code")
    parser.add_argument("slot", metavar="SLOT", nargs="?", help="a slot, such as zero.stage")
    intent_options(parser)
    format_option(parser)


def _card(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "card",
        "derive the card of a model from its real class",
        "A card holds what the accounts need of a model: its modules, its layers by kind, and the\n"
        "memory that they take, read off the class that transformers builds of its config.json,\n"
        "without weights or a GPU (install tunec[trace]). It is kept in the user's cache, where\n"
        "plans find it; -o writes it to FILE, which a spec can name as its model. Code of the\n"
        "model's own repository (`auto_map`) is run with --trust-remote-code alone, in a process\n"
        "of its own and without the network.\n"
        "examples:\n  tunec card path/to/config.json\n"
        "  tunec card openai/gpt-oss-20b -o gpt-oss-20b.json",
    )
    parser.add_argument(
        "model", metavar="MODEL|CONFIG", help="a model's name, or the path of its config.json"
    )
    output_option(parser, "FILE", "file to write")
    switch(
        parser,
        "--trust-remote-code",
        "run the Python files beside the config.json, where transformers has no class",
    )
    format_option(parser)


def _probe(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "probe",
        "write a hardware profile of this machine",
        "Reads nvidia-smi, the kernel and this Python's packages; needs no torch.\n"
        "example:\n  tunec probe -o here.yaml && tunec plan spec.yaml --hardware here.yaml",
    )
    parser.add_argument("--name", default="", help="the cluster's name; default: the host's name")
    output_option(parser, "FILE", "file to write; default: stdout")
    format_option(parser)


def _catalog(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "catalog",
        "list the catalogue: devices, clusters, models, datasets, targets, slots, passes, "
        "codes, rules",
        "examples:\n  tunec catalog devices\n  tunec catalog models glm-4v-9b",
    )
    parser.add_argument("kind", metavar="KIND", nargs="?", help="what to list; default: all kinds")
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="one entry in full, with its sources; or part of a name, to list those with it",
    )
    format_option(parser)


def _schema(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "schema",
        "print a JSON Schema, for editors and validators",
        "Put `# yaml-language-server: $schema=PATH` at the top of a spec for editor completion.",
    )
    parser.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        default="spec",
        help="spec (default), fleet, policy, lint, cluster, device, model-card, prices, choice",
    )
    output_option(parser, "FILE", "file to write; default: stdout")
    format_option(parser)


def _lsp(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "lsp",
        "run the language server, for editors",
        "An editor starts it and talks to it over stdin and stdout (install tunec[lsp]):\n"
        "docs/editor.md shows how VS Code, Neovim, Helix and Zed are set up.",
    )
    switch(parser, "--stdio", "as some editors say; the only way")


def _mcp(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "mcp",
        "run the server of the Model Context Protocol, for agents",
        "An agent starts it and talks to it over stdin and stdout (install tunec[mcp]). Tools are\n"
        "plan, explain, lint, choose, verify, diff, translate and compile, with typed results.\n"
        "Specs, configs and output lie below DIR; translate and compile write into the directory\n"
        "that a call names, the others write nothing, and verify fetches nothing.",
    )
    parser.add_argument(
        "--directory",
        type=place,
        metavar="DIR",
        default=".",
        help="where the files lie; default: the working directory",
    )


def _init(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "init",
        "start a spec: a new one, or one from existing config files",
        "With --from, the config files and launch scripts of an existing run become a spec, as\n"
        "with `tunec translate --to spec`. --model, --hardware and --method then supply what the\n"
        "files do not state; --set and --without settle the rest.\n"
        "\n"
        "examples:\n"
        "  tunec init -o spec.yaml  # with spec.schema.json beside it, for editors\n"
        "  tunec init > spec.yaml\n"
        "  tunec init --from train.sh ds_config.json --hardware a100-80g-x8 -o spec.yaml",
    )
    output_option(parser, "FILE", "file to write, with its JSON Schema beside it; default: stdout")
    parser.add_argument("--from", dest="files", metavar="FILE", nargs="+", help="existing configs")
    parser.add_argument("--model", help="a catalogue model; default for a new spec: llama-3.2-3b")
    parser.add_argument("--hardware", help="a catalogue name; default for a new spec: a100-80g-x1")
    parser.add_argument(
        "--method",
        choices=("full", "lora", "qlora", "int8_lora"),
        help="the training method; default for a new spec: lora",
    )
    parser.add_argument(
        "--data",
        help="training data of a new spec: a file, a directory or a data set name; JSON lines are "
        "counted; default: train.jsonl",
    )
    settling_options(parser)
    outside_option(parser)
    format_option(parser)


def _completion(commands: "Subparsers") -> None:
    parser = new_command(
        commands,
        "completion",
        "print a shell's completion script",
        "example:\n  tunec completion bash > ~/.local/share/bash-completion/completions/tunec",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="which shell")
    format_option(parser)
