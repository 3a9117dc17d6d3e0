"""Which calls of a Python file are one run.

Two calls of one kind are alternatives: each is a run of its own, with those of the other kinds that
can only be meant with it. What stands under `if args.use_lora:` happens in some runs of a script
only: that it does is known where a command of the repository gives the flag (`is_reached`).
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final

from msgspec import Struct, field

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.frontend.python_origins import tree_of
from tunec.compiler.frontend.python_scopes import are_exclusive
from tunec.compiler.lints.document import TRAINERS
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

MOST_RUNS: Final = 16
_ENGINES: Final = ("accelerate", "deepspeed")
_PATH: Final = "model_name_or_path"
_TRAINS: Final = re.compile(
    r"Trainer\(|\.backward\(|HfArgumentParser|Accelerator\("
    r"|deepspeed\.initialize\([^#]*?\b(?:model_parameters|optimizer)="
)
_MADE: Final = re.compile(r"\w*Trainer\(")
_REMARK: Final = re.compile(r"(?m)#.*$")


class Found(Struct, frozen=True, eq=False):
    """The contents of one call, as a document."""

    kind: str
    root: Node
    unknown: frozenset[str]
    call: Call
    runs: frozenset[int] = frozenset()
    """The numbers of the file's runs that it belongs to."""
    late: Mapping[str, Node] = field(default_factory=dict)
    """What is set after the object was used to make another."""


class _Links(Struct, frozen=True):
    """How a file uses the objects that it makes."""

    trained: frozenset[str]
    """Variables that are passed to a trainer, or that get an adapter."""
    merged: frozenset[str]
    """Variables that an adapter is loaded on: a base that is loaded again, after training."""


def _links(calls: Calls) -> _Links:
    trained, merged = set[str](), set[str]()
    for call in calls.found:
        names = [each.id for each in call.arguments if hasattr(each, "id")]
        if call.name.endswith("Trainer"):
            keys = ("model", "args", "peft_config")
            trained |= {name for key in keys if (name := calls.given(call, key))} | set(names)
        elif call.holder == "PeftModel":
            merged |= set(names[:1])
    return _Links(frozenset(trained), frozenset(merged - trained))


def in_runs(found: Sequence[Found], calls: Calls, text: str) -> Iterator[Found]:
    """The contents of a file's calls, each with its runs."""
    links = _links(calls)
    every = [each for each in found if each.kind in TRAINERS]
    anchors = [each for each in every if not _is_left(each, text)] or every
    others = [each for each in found if each.kind not in TRAINERS]
    models = [each for each in others if each.kind == "model" and not _is_merged(each, links)]
    models = [each for each in models if not _is_exception(each, models)]
    adapters = [each for each in others if each.kind == "peft"]
    if not anchors and not adapters and not _TRAINS.search(text):
        return
    runs = _runs(anchors, models, adapters, links)[:MOST_RUNS]
    engines = [each for each in others if each.kind in _ENGINES]
    runs = [[*run, *_of_run(run, engines)] for run in runs or ([],)]
    runs = [run for run in runs if run]
    taken = {id(each) for run in runs for each in run}
    runs += [[each] for each in adapters if id(each) not in taken][: MOST_RUNS - len(runs)]
    for each in found:
        numbers = frozenset(n for n, run in enumerate(runs) if any(each is one for one in run))
        if numbers:
            yield replace(each, runs=numbers)


def _of_run(run: Sequence[Found], engines: Sequence[Found]) -> list[Found]:
    """What Accelerate is given, where one object of it is made that may be this run's."""
    mine = [each for each in engines if _is_possible([*run, each])]
    return mine if len({id(each.call) for each in mine}) == 1 else []


def _is_left(anchor: Found, text: str) -> bool:
    """Whether a file that trains makes arguments in a variable that it does not use.

    If it makes others, those are used for training.
    """
    names = [re.escape(each) for each in anchor.call.site.targets]
    if not names or _MADE.search(text) is None:
        return False
    code = _REMARK.sub("", text)
    return not any(re.search(rf"(?<![\w.]){name}\b(?!\s*=[^=])", code) for name in names)


def _is_exception(model: Found, models: Sequence[Found]) -> bool:
    """Whether a branch names a model itself, and another branch loads the requested one."""
    mine = model.call.site
    if not mine.arms or not _names_itself(model):
        return False
    same = [each for each in models if each.call.site.targets == mine.targets]
    others = (each for each in same if are_exclusive(each.call.site.arms, mine.arms))
    return any(not _names_itself(each) for each in others)


def _names_itself(model: Found) -> bool:
    at = model.root.child(_PATH)
    return at is not None and isinstance(at.value, str)


def _is_merged(model: Found, links: _Links) -> bool:
    targets = model.call.site.targets
    return not links.merged.isdisjoint(targets) and links.trained.isdisjoint(targets)


def _runs(
    anchors: Sequence[Found], models: Sequence[Found], adapters: Sequence[Found], links: _Links
) -> list[list[Found]]:
    """The documents of each run: a trainer's, with those that can only belong to it."""
    runs: list[list[Found]] = []
    each_anchor: Sequence[Found | None] = anchors or (None,)
    for anchor in each_anchor:
        chosen = [_beside(anchor, each, links, len(anchors)) for each in (models, adapters)]
        choices: list[Sequence[Found | None]] = [each or (None,) for each in chosen]
        for picked in product(*choices):
            run = [each for each in (anchor, *picked) if each is not None]
            if _is_possible(run):
                runs.append(run)
            if len(runs) == MOST_RUNS:
                return runs
    return [each for each in runs if each]


def _is_possible(run: Sequence[Found]) -> bool:
    pairs = combinations(run, 2)
    return not any(are_exclusive(a.call.site.arms, b.call.site.arms) for a, b in pairs)


def _beside(
    anchor: Found | None, others: Sequence[Found], links: _Links, anchors: int
) -> list[Found]:
    """Those of another kind that may go with a trainer; several are alternatives."""
    mine = [each for each in others if anchor is None or _is_possible((anchor, each))]
    if anchor is not None:
        scope = anchor.call.site.block
        here = [each for each in mine if each.call.site.block is scope]
        above = [each for each in mine if each.call.site.block is scope.module]
        alone = mine if len(others) == anchors == 1 else []
        mine = here or above or alone
    if len(mine) > 1:
        used = [e for e in mine if not links.trained.isdisjoint(e.call.site.targets)]
        mine = used or mine
    are_alternatives = all(not _is_possible(pair) for pair in combinations(mine, 2))
    return mine if are_alternatives else []


_ENGINE: Final = "hf_ds_config"
_INITIALIZE: Final = "deepspeed.initialize"
_OF_ENGINE: Final = ("config", "config_params")
"""Where it takes what its file would hold: deepspeed 0.14.5 to 0.19.8 __init__.py `initialize`."""
_IN_CAPITALS: Final = frozenset(
    {"sharding_strategy", "auto_wrap_policy", "backward_prefetch", "state_dict_type"}
)
_OF_FSDP: Final = (
    *("fsdp_version", "sharding_strategy", "reshard_after_forward", "backward_prefetch"),
    *("auto_wrap_policy", "state_dict_type", "use_orig_params", "sync_module_states"),
    *("forward_prefetch", "activation_checkpointing", "cpu_ram_efficient_loading"),
    "min_num_params",
)
_OF_DEEPSPEED: Final = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "zero3_init_flag"),
    *("offload_optimizer_device", "offload_param_device", "zero3_save_16bit_model"),
)
_PLUGINS: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "accelerate.FullyShardedDataParallelPlugin": (
        "FSDP",
        "fsdp_config",
        {
            **{key: f"fsdp_{key.removeprefix('fsdp_')}" for key in _OF_FSDP},
            "cpu_offload": "fsdp_offload_params",
            "transformer_cls_names_to_wrap": "fsdp_transformer_layer_cls_to_wrap",
        },
    ),
    "accelerate.DeepSpeedPlugin": (
        "DEEPSPEED",
        "deepspeed_config",
        {**{key: key for key in _OF_DEEPSPEED}, _ENGINE: "deepspeed_config_file"},
    ),
}
"""Arguments of accelerate's plugins, and what its file calls them."""
_OF_LAUNCH: Final = frozenset(
    {"num_processes", "num_machines", "machine_rank", "main_process_ip", "gpu_ids", "use_cpu"}
)


def short_of(origin: str) -> str:
    """An origin without the modules between: `peft.tuners.lora.LoraConfig` is `peft.LoraConfig`."""
    package, _, rest = origin.partition(".")
    return f"{package}.{rest.rpartition('.')[2]}" if rest else origin


def is_accelerator(origin: str) -> bool:
    """Whether an import is Accelerate's own class that prepares training."""
    return short_of(origin) == "accelerate.Accelerator"


def prepares(origin: str) -> bool:
    """Whether an import prepares training by an engine: Accelerate's class, or DeepSpeed itself."""
    return is_accelerator(origin) or origin == _INITIALIZE


def is_plugin(origin: str) -> bool:
    """Whether an import is a class that configures Accelerate for an engine."""
    return short_of(origin) in _PLUGINS


def engine_settings(call: Call, calls: Calls) -> Iterator[Found]:
    """The settings of an engine, as far as they are written where training is prepared."""
    if call.origin != _INITIALIZE:
        yield from _plugin_settings(call, calls)
        return
    given = (call.fields[key] for key in _OF_ENGINE if key in call.fields)
    for engine in (each for each in given if each.fields):
        yield Found("deepspeed", engine, frozenset(), call)


def _plugin_settings(call: Call, calls: Calls) -> Iterator[Found]:
    """The settings that a plugin gives `Accelerator`, under the keys of accelerate's own file.

    accelerate 1.0.1 to 1.15.0 utils/dataclasses.py: variables of the launcher may set the others.
    """
    for keyword in ("fsdp_plugin", "deepspeed_plugin"):
        plugin = _given(call, keyword, calls)
        if plugin is None:
            continue
        kind, block, names = _PLUGINS[short_of(plugin.origin)]
        mine = {
            names[key]: _in_its_words(key, node)
            for key, node in plugin.fields.items()
            if key in names and not (key == _ENGINE and node.fields is not None)
        }
        fields = {
            "distributed_type": Node(call.span, value=kind),
            block: Node(plugin.span, fields=mine),
            **{key: call.fields[key] for key in ("mixed_precision",) if key in call.fields},
        }
        absent = {f"{block}.{key}" for key in {*names.values()} - mine.keys()}
        unknown = frozenset({*absent, *_OF_LAUNCH, *({"mixed_precision"} - fields.keys())})
        yield Found("accelerate", Node(call.span, fields=fields), unknown, call)
        engine = plugin.fields.get(_ENGINE)
        if engine is not None and engine.fields:
            yield Found("deepspeed", engine, frozenset(), call)


def _given(call: Call, keyword: str, calls: Calls) -> Call | None:
    """The plugin that is passed as a keyword, made there or assigned once."""
    value = next((e.value for e in call.site.call.keywords if e.arg == keyword), None)
    name = calls.given(call, keyword)
    if name is not None:
        binding = call.site.scope.found(name)
        values = [each.value for each in binding[0]] if binding is not None else []
        value = values[0] if len(values) == 1 and name not in calls.module.changed else None
    mine = (each for each in calls.found if each.site.call is value and not each.is_open)
    return next((each for each in mine if short_of(each.origin) in _PLUGINS), None)


def _in_its_words(key: str, node: Node) -> Node:
    """A value as in accelerate's file: words in capitals, classes in one text."""
    if key == "transformer_cls_names_to_wrap" and node.items is not None:
        names = [str(each.value) for each in node.items]
        return replace(node, items=None, value=",".join(names))
    is_word = isinstance(node.value, str) and key in _IN_CAPITALS
    return replace(node, value=str(node.value).upper()) if is_word else node


_OFF: Final = r"(?!\s+[\"']?(?:[Ff]alse|0|no|none|None)\b)"
_MET: Final = re.compile(
    r"__name__|\bdo_train\b|local_rank|process_index|is_main|is_world|pad_token|\bis_\w+_available\b"
)
"""What a condition asks that every training run meets, in one of its processes at least."""


class _Branch(Struct, frozen=True):
    """A branch: its lines, what it asks, and whether it is taken if that is so."""

    first: int
    last: int
    test: ast.expr
    is_then: bool


def is_reached(text: str, line: int, commands: Iterable[str]) -> bool:
    """Whether a line of a file stands under no condition, or under those that a command meets.

    A function that is called under a condition alone stands under it too. True if the text is no
    Python.
    """
    given = "\n".join(commands)
    conditions = [each for each in _conditions(text) if each.first <= line <= each.last]
    return all(_is_met(each, given) for each in conditions)


def _is_met(branch: _Branch, commands: str) -> bool:
    asked = ast.unparse(branch.test)
    if isinstance(branch.test, ast.Constant) or _MET.search(asked):
        return True
    if not branch.is_then or not isinstance(branch.test, ast.Attribute | ast.Name):
        return False
    name = asked.rpartition(".")[2].replace("_", "[-_]")
    return re.search(rf"--{name}(?![\w-]){_OFF}", commands) is not None


@cached(64)
def _conditions(text: str) -> tuple[_Branch, ...]:
    module = tree_of(text)
    if module is None:
        return ()
    branches = tuple(_branches(module))
    return branches + tuple(_of_calls(module, branches))


def _branches(module: ast.Module) -> Iterator[_Branch]:
    for each in ast.walk(module):
        if isinstance(each, ast.If):
            for part, is_then in ((each.body, True), (each.orelse, False)):
                if part and not (not is_then and _asks_on(part)):
                    last = part[-1].end_lineno or part[-1].lineno
                    yield _Branch(part[0].lineno, last, each.test, is_then)


def _asks_on(part: list[ast.stmt]) -> bool:
    """Whether an `else` is an `elif`, whose own branch says what it asks."""
    return len(part) == 1 and isinstance(part[0], ast.If)


def _of_calls(module: ast.Module, branches: tuple[_Branch, ...]) -> Iterator[_Branch]:
    """Functions of the file all of whose calls stand under a condition."""
    lines: dict[str, list[int]] = {}
    for each in ast.walk(module):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            lines.setdefault(each.func.id, []).append(each.lineno)
    for function in module.body:
        called = lines.get(getattr(function, "name", ""), [])
        if isinstance(function, ast.FunctionDef) and called:
            around = [[b for b in branches if b.first <= at <= b.last] for at in called]
            if all(around):
                last = function.end_lineno or function.lineno
                innermost = max(around[0], key=lambda branch: branch.first)
                yield _Branch(function.lineno, last, innermost.test, innermost.is_then)
