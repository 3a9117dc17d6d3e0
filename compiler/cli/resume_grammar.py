"""The grammar of `tunec resume`."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import format_option, intent_options, new_command

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers


def add_resume(commands: "Subparsers") -> None:
    """`tunec resume`."""
    parser = new_command(
        commands,
        "resume",
        "show how training continues from a checkpoint on other machines",
        "Reads a folder of DeepSpeed, FSDP, the Trainer, PEFT or accelerate: names of files,\n"
        "JSON and headers; pickles are not loaded. Says whether the optimizer state goes\n"
        "along, by which conversion, and what becomes of batch, rate and data order. With --spec\n"
        "the plan on the new machines keeps the batch; without, the engine stays the same.\n"
        "\n"
        "examples:\n"
        "  tunec resume output/checkpoint-500 --hardware h100-sxm-x4\n"
        "  tunec resume output/checkpoint-500 --hardware h100-sxm-x4 --spec spec.yaml",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the folder of a checkpoint")
    parser.add_argument("--spec", metavar="SPEC", help="the spec of the run that is to go on")
    intent_options(parser)
    format_option(parser)
