"""Rules about machines and processes in accelerate's file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import LOCAL, is_unknown, launches
from tunec.compiler.lints.facts.precision import LAUNCHED
from tunec.compiler.lints.facts.sharding import count, engine
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule


@rule("error", "parse", consumers=("accelerate",), reads=("accelerate:*",))
def distributed_type_missing(run: LintContext) -> Iterator[Finding]:
    """distributed_type is missing, so accelerate has no engine to start."""
    for document in run.of("accelerate"):
        if document.is_view or document.get("distributed_type") is not None:
            continue
        first = next(iter(document.found.values()), None)
        if first is not None:
            yield Finding(
                f"{document.name} has no distributed_type",
                (first.key_label("refused"),),
                ("it is the one key that accelerate's file must have",),
                "write distributed_type: MULTI_GPU, DEEPSPEED, FSDP or 'NO'",
                # what the questionnaire writes begins with it: another file may be a part of one
                severity=None if document.get("compute_environment") else "warning",
            )


_ENGINES: Final = ("MULTI_GPU", "FSDP", "MEGATRON_LM")
_TELLING: Final = ("main_process_ip", "config_file", "use_deepspeed", "deepspeed_hostfile", "tpu")


@rule(
    "error",
    "init",
    consumers=("accelerate",),
    reads=("accelerate:num_machines", "launch:flags.num_machines"),
)
def machines_without_address(run: LintContext) -> Iterator[Finding]:
    """Several machines are requested, but the address at which they meet is missing."""
    yield from _by_flags(run)
    if any(_is_met_by_flag(each) for each in launches(run, "accelerate")):
        return
    for document in run.of("accelerate"):
        kind, machines = engine(document), count(document, "num_machines")
        if kind is None or kind.value not in _ENGINES or machines is None or machines[0] < 2:
            continue
        yield from _of_itself(document, machines[1])
        if document.value("main_process_ip") is None:
            yield Finding(
                f"{machines[0]} machines need main_process_ip",
                (
                    machines[1].label("the rendezvous address is None"),
                    kind.label("", primary=False),
                ),
                ("the address can also be given on the command line",),
                "write main_process_ip and main_process_port",
                severity="warning",
            )


def _is_met_by_flag(document: Document) -> bool:
    flag = "flags.main_process_ip"
    return document.get(flag) is not None or is_unknown(document, flag)


def _by_flags(run: LintContext) -> Iterator[Finding]:
    """Flags request several machines without main_process_ip, and no file that was read sets it."""
    for document in launches(run, "accelerate"):
        machines = document.get("flags.num_machines")
        if machines is None or type(machines.value) is not int or machines.value < 2:
            continue
        is_told = any(document.get(f"flags.{each}") for each in _TELLING) or run.of("accelerate")
        if is_told or document.unknown:
            continue
        yield Finding(
            f"{machines.value} machines and no --main_process_ip",
            (machines.label("the rendezvous address is None"),),
            ("accelerate's default config file may set it; it is not read here",),
            "write --main_process_ip and --main_process_port",
            severity="warning",
        )


def _of_itself(document: Document, machines: Place) -> Iterator[Finding]:
    """The address or port is one that every machine resolves differently."""
    address, port = document.get("main_process_ip"), document.get("main_process_port")
    for place, is_own in (
        (address, address is not None and str(address.value) in LOCAL),
        (port, port is not None and port.value in (0, "0") and port.value is not False),
    ):
        if place is not None and is_own:
            yield Finding(
                f"{machines.value} machines that meet at {place.path} {place.value}",
                (place.label("different on every machine"), machines.label("", primary=False)),
                ("each machine waits at its own address until the rendezvous times out",),
                "write the address and port of the first machine",
                consequence="hang",
            )


_STANDARD: Final = "deepspeed_config.deepspeed_multinode_launcher"
_HOSTFILE: Final = "deepspeed_config.deepspeed_hostfile"


@rule(
    "warning", "silent", consumers=("accelerate", "deepspeed"), reads=("accelerate:num_machines",)
)
def machines_without_hostfile(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed is to start several machines, but no hostfile names them."""
    for document in run.of("accelerate"):
        kind, machines = engine(document), count(document, "num_machines")
        if kind is None or kind.value != "DEEPSPEED" or machines is None or machines[0] < 2:
            continue
        launcher = document.get(_STANDARD)
        if document.value(_HOSTFILE) is not None:
            continue
        if launcher is not None and launcher.value in ("standard", "nossh", "slurm"):
            continue
        yield Finding(
            f"{machines[0]} machines need a hostfile for {launcher.value if launcher else 'pdsh'}",
            (machines[1].label("one machine is started"), *also(launcher)),
            ("deepspeed finds no hostfile and continues with local resources only",),
            "write deepspeed_hostfile, or deepspeed_multinode_launcher: standard and start "
            "accelerate on each machine",
        )


@rule("error", "silent", consumers=("accelerate",), reads=("accelerate:num_machines",))
def processes_not_even_over_machines(run: LintContext) -> Iterator[Finding]:
    """The processes cannot be distributed evenly over the machines."""
    for document in run.of("accelerate"):
        asked, machines = _requested(run, document), count(document, "num_machines")
        if asked is None or machines is None or asked[0] % machines[0] == 0:
            continue
        each = asked[0] // machines[0]
        yield Finding(
            f"{asked[0]} processes over {machines[0]} machines: each starts {each}",
            (
                asked[1].label("the processes of all machines together"),
                machines[1].label("", primary=False),
            ),
            (f"the division is rounded down: {each * machines[0]} processes in all",),
            f"write {max(each, 1) * machines[0]}: num_processes counts all machines",
        )


def _requested(run: LintContext, document: Document) -> tuple[int, Place] | None:
    """The requested processes: by the flag of the only command, if it has one, else by the file."""
    commands = [each for each in run.of("launch") if each.value("launcher") == "accelerate"]
    if len(commands) == 1 and len(run.of("accelerate")) == 1:
        flag = commands[0].get("flags.num_processes")
        if flag is not None and is_whole(flag.value):
            return flag.value, flag
    return count(document, "num_processes")


processes_without_engine = rows(
    "processes-without-engine",
    "error",
    "silent",
    consumers=("accelerate",),
    rows=(
        Row(
            "accelerate:num_processes>1",
            "num_processes {0.value} with distributed_type NO: one process is started",
            label="not read",
            why="accelerate launch then runs the script directly",
            help="write distributed_type: MULTI_GPU",
            mend=Mend("unsafe", write="MULTI_GPU", at=1),
            beside=("distributed_type=NO", "no use_cpu=true"),
            beside_label="one process",
        ),
    ),
)


zero_3_init_below_stage_3 = rows(
    "zero-3-init-below-stage-3",
    "warning",
    "silent",
    consumers=("accelerate",),
    rows=(
        Row(
            "accelerate:deepspeed_config.zero3_init_flag=true",
            "zero3_init_flag does nothing at stage {1.value}",
            label="turned off",
            why="accelerate warns and continues",
            help="write false, or zero_stage: 3",
            mend=Mend("safe", write=False),
            beside=("deepspeed_config.zero_stage=0|1|2",),
        ),
    ),
)


_REFUSED_OTHER: Final = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}


@rule("error", "init", consumers=("accelerate",), reads=LAUNCHED)
def launcher_precision_refused(run: LintContext) -> Iterator[Finding]:
    """The launcher's precision conflicts with the one that ds_config.json enables."""
    launched = _launched(run)
    if launched is None or launched.word not in _REFUSED_OTHER or not _is_started(run, launched):
        return
    mode = _REFUSED_OTHER[launched.word]
    if any(each.value not in (False, None) for each in run.each("trainer", mode)):
        return  # the Trainer sets the variable by its own arguments
    for at in run.each("deepspeed", f"{mode}.enabled"):
        if at.value is True and at.document.kind == "deepspeed" and at.document.format == "json":
            yield Finding(
                f"mixed_precision {launched.value} cannot be combined with {mode}"
                f" of {at.document.name}",
                (launched.label("refused"), at.label("enabled here", primary=False)),
                (f"accelerate: `--mixed_precision` cannot be set where {mode} is set in the file",),
                f"write {mode}, or let the file say `auto`",
            )


def _is_started(run: LintContext, launched: Place) -> bool:
    """Whether DeepSpeed may be started with the precision of accelerate's file or flag."""
    kind = run.said("accelerate", "distributed_type")
    flags = run.said("launch", "flags.deepspeed_config_file", "flags.use_deepspeed")
    is_other = kind is not None and str(kind.value).upper() != "DEEPSPEED"
    return flags is not None or not is_other or launched.document.kind == "launch"


def _launched(run: LintContext) -> Place | None:
    flags = (each.get("flags.mixed_precision") for each in launches(run, "accelerate"))
    given = next((each for each in flags if each is not None), None)
    return given or next(_in_file(run), None)


def _in_file(run: LintContext) -> Iterator[Place]:
    """The precision in accelerate's files, except in those that name ds_config.json.

    `engine-settings-overridden` reports the latter.
    """
    for at in run.each("accelerate", "mixed_precision"):
        if at.document.get("deepspeed_config.deepspeed_config_file") is None:
            yield at
