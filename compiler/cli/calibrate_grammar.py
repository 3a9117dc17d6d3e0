"""The grammar of `tunec calibrate`."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import format_option, intent_options, new_command, place

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers


def add_calibrate(commands: "Subparsers") -> None:
    """`tunec calibrate`."""
    parser = new_command(
        commands,
        "calibrate",
        "compare a run that happened with its plan, and let plans on its cluster learn from it",
        "RUN is what one run left: files or directories. Read are trainer_state.json, logs of the\n"
        "Trainer, TRL, Axolotl and DeepSpeed, LLaMA-Factory's trainer_log.jsonl, torch's memory\n"
        "statistics as JSON and memory snapshots, tables of nvidia-smi, and what the probe of\n"
        "`watch: true` writes. The numbers go to NAME.measured.yaml beside the cluster's file, or\n"
        "beside the spec where the cluster is of the catalogue; plan, lint, choose and fleet read\n"
        "them there. Without RUN, the numbers of such a file are worked out anew.\n"
        "\n"
        "examples:\n"
        "  tunec calibrate spec.yaml output/trainer_state.json train.log smi.csv\n"
        "  tunec calibrate spec.yaml out/watch --dry-run\n"
        "  tunec calibrate a100-80g-x8.measured.yaml",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file of the run")
    parser.add_argument("runs", metavar="RUN", nargs="*", help="what the run left")
    intent_options(parser)
    parser.add_argument(
        "-o", "--output", type=place, metavar="FILE", help="write this file instead"
    )
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    format_option(parser)
