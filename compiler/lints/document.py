"""A document of a run, and its keys: their values, their places, and edits there."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Edit, Fix, Label
from tunec.compiler.frontend.nodes import Node, place, plain
from tunec.compiler.frontend.shell_flags import Unknown
from tunec.compiler.lints.edits import Source, add_key, remove_key, rename_key, replace_value
from tunec.compiler.target import File, Found, Target
from tunec.schemas.source import Span, start_of


class Place(Struct, frozen=True):
    """A key with its value, as one document sets it."""

    document: "Document"
    """The document that holds the key."""
    path: str
    """The key's dotted path in the file; for a view (DeepSpeed's keys in an accelerate file) it
    differs from the path under which the view has the key."""
    node: Node

    @property
    def value(self) -> Any:
        """The value as plain data."""
        return plain(self.node)

    @property
    def first_word(self) -> str:
        """The value, or a list's first item, as text; for a command, the program that it starts."""
        words = self.value if isinstance(self.value, list) else [self.value]
        first = words[0] if words else ""
        return first.written if isinstance(first, Unknown) else str(first)

    @property
    def word(self) -> str | None:
        """The value if it is text, else None."""
        value = self.value
        return value if isinstance(value, str) else None

    @property
    def span(self) -> Span:
        """The span of the value, or of its key if the value takes several lines."""
        return place(self.node)

    @property
    def key_span(self) -> Span:
        """The span of the key, or of the value if there is no key (an item of a list)."""
        return self.node.key_span or self.node.span

    def label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the value."""
        return Label(text, self.span, self.path, primary)

    def key_label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the key."""
        return Label(text, self.key_span, self.path, primary)

    def replaced(self, value: Any) -> Edit:
        """The edit that writes another value here, in the syntax of the file's format."""
        return replace_value(self.document.source, self.node, value)

    def renamed(self, key: str) -> Edit:
        """The edit that renames the key and keeps the value."""
        return rename_key(self.document.source, self.node, key)

    def removed(self) -> Edit:
        """The edit that removes the key and its value, with its line or its comma."""
        return remove_key(self.document.source, self.node)


def meant(place: Place, name: str | None) -> tuple[str, Fix | None]:
    """The help and the fix for an unknown key: rename it to `name`, or remove it if None."""
    if name is None:
        return "remove it", None
    return f"did you mean `{name}`?", Fix((place.renamed(name),), "unsafe")


def also(place: Place | None, text: str = "") -> tuple[Label, ...]:
    """The secondary label at another place of a finding, if there is such a place."""
    return () if place is None else (place.label(text, primary=False),)


TRL: Final = ("sft", "dpo", "grpo", "kto", "reward", "rloo", "gkd", "ppo")
"""Kinds of document that hold a config class of TRL together with TRL's ModelConfig."""
TRAINERS: Final = ("hf", *TRL, "llamafactory")
"""Kinds whose files hold the fields of transformers' TrainingArguments under their own names."""

_READ_LATER: Final = frozenset(
    {
        *("per_device_train_batch_size", "per_device_eval_batch_size", "learning_rate"),
        *("gradient_accumulation_steps", "num_train_epochs", "max_steps", "weight_decay"),
        *("max_grad_norm", "gradient_checkpointing", "gradient_checkpointing_kwargs"),
        *(
            "seed",
            "data_seed",
            "save_total_limit",
            "dataloader_num_workers",
            "optim_target_modules",
        ),
        *("remove_unused_columns", "adam_beta1", "adam_beta2", "adam_epsilon", "label_names"),
    }
)
"""Fields that the trainer reads when it is created or trains, and that `__post_init__` of the
arguments does not read: transformers 4.40.2 to 5.23.0 training_args.py
`TrainingArguments.__post_init__`."""
READ_ONCE: Final = frozenset({"bf16", "fp16"})
"""Fields from which `__post_init__` computes what the trainer reads: `mixed_precision` in the same
file; before 5.0 the variable ACCELERATE_MIXED_PRECISION."""

_HANDED_ON: Final = ("glm4",)
"""Kinds whose block for another reader is passed on unchanged: `training_args` of GLM-4's
configuration to Seq2SeqTrainingArguments."""

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {"trainer": TRAINERS}
"""Names under which `LintContext` finds documents of several kinds."""


def families_of(kind: str) -> tuple[str, ...]:
    """The families that contain a kind."""
    return tuple(name for name, kinds in FAMILIES.items() if kind in kinds)


Test = Callable[[str, Any], bool]
"""A test of a path and the value there; it depends on nothing else."""


class Document(Struct, frozen=True, eq=False, dict=True):
    """One file of a run with its keys. A document is equal only to itself."""

    name: str
    """The file's name as it was given, or as the file that refers to it gives it."""
    kind: str
    """Whose keys it holds: `deepspeed`, `hf`, `peft`, `model`, `sft`, `dpo`, `grpo`, `accelerate`,
    `axolotl`, `llamafactory`, `simpletuner`, `launch`, or the name of another reader's target."""
    format: str
    """The format of the file: `json`, `yaml`, `toml`, `env`, `shell` or `python`."""
    text: str
    root: Node
    target: Target | None = None
    """The target whose table reads the document; None: keys are known, slots are not (a view)."""
    file: File | None = None
    origin: "Document | None" = None
    """The document from which a view is made: the same places under the keys of another dialect."""
    unknown: frozenset[str] = frozenset()
    """Keys whose value is known only when the file is run."""
    hidden: Mapping[str, Node] = field(default_factory=dict)
    """The top-level keys among `unknown` that are written in the file, with their nodes."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """For a view: the path in `origin` of each of its keys."""
    runs: frozenset[int] = frozenset()
    """For a file with alternatives: the numbers of the runs that include this document; empty:
    all."""
    folder: str = ""
    """For a command: the folder in which it starts, relative to the folder of its script."""
    loose: tuple[tuple[str, Span], ...] = ()
    """For a command: the words that belong to no flag, and name no file."""

    __repr__ = object.__repr__

    @property
    def is_view(self) -> bool:
        """Whether the document is a view: another document holds these keys under other names."""
        return self.origin is not None

    @property
    def alternatives(self) -> frozenset[int]:
        """The runs of the file to which the document, or a view's origin, belongs; empty: all."""
        return self.runs if self.origin is None else self.origin.alternatives

    @property
    def is_partial(self) -> bool:
        """Whether the document is a view that may lack some of what its reader receives."""
        return self.origin is not None and self.origin.kind not in _HANDED_ON

    @property
    def is_compiled(self) -> bool:
        """Whether a header says that tunec wrote the file, from a plan with consistent keys."""
        second = self.text.find("\n") + 1
        return any(self.text.startswith("# tunec ", at) for at in (0, second))

    @property
    def source(self) -> Source:
        """The text, with the name and format that edits need."""
        return Source(self.name, self.format, self.text)

    @cached_property
    def found(self) -> Mapping[str, Place]:
        """Every key by dotted path, both mappings and the keys in them, in the file's order."""
        return dict(self._walk(self.root, ""))

    @cached_property
    def named(self) -> Mapping[str, Place]:
        """Every key, including top-level keys whose value is unknown."""
        hidden = {key: Place(self, key, node) for key, node in self.hidden.items()}
        return {**self.found, **hidden} if hidden else self.found

    @cached_property
    def flat(self) -> dict[str, Found]:
        """Every key by dotted path, with its plain value and place, as the tables read it."""
        return {
            path: Found(plain(each.node), place(each.node)) for path, each in self.found.items()
        }

    @cached_property
    def written(self) -> Mapping[str, str]:
        """Every key with the `repr` of its value."""
        return {path: repr(place.value) for path, place in self.found.items()}

    @property
    def keys(self) -> tuple[str, ...]:
        """Every dotted path, in the file's order."""
        return tuple(self.found)

    def get(self, path: str) -> Place | None:
        """The place of a dotted path, if the document sets it."""
        return self.found.get(path)

    def value(self, path: str, otherwise: Any = None) -> Any:
        """The value that the document itself sets at a path, else `otherwise`."""
        found = self.found.get(path)
        return otherwise if found is None else found.value

    def hides(self, *keys: str) -> bool:
        """Whether one of some keys has a value that is known only when the file is run.

        A config that is chosen only then may hold any key that its command does not give.
        """
        is_chosen = self.format == "shell" and "config" in self.unknown
        is_open = is_chosen and not self.found.keys() >= set(keys)
        return is_open or not self.unknown.isdisjoint(keys)

    def where(self, test: Test) -> Mapping[str, Place]:
        """The keys whose path and value pass a test, in the file's order.

        Code that looks for few values among many uses this method, so that its result can be reused
        until other keys pass the test.
        """
        return {key: at for key, at in self.found.items() if test(at.path, at.value)}

    def added(self, path: str, value: Any) -> Edit | None:
        """The edit that writes a missing key; None for a view, or if there is no place for it."""
        return None if self.is_view else add_key(self.source, self.root, path, value)

    def start(self) -> Span:
        """The start of the file, for findings about the file as a whole."""
        return start_of(self.name)

    def lacking(self, key: str) -> Label:
        """A secondary label for a key that the document lacks, at its first key or its start."""
        text = f"no {key} in this file"
        first = next(iter(self.found.values()), None)
        if first is None:
            return Label(text, self.start(), "", primary=False)
        return first.key_label(text, primary=False)

    def _walk(self, node: Node, prefix: str) -> Iterator[tuple[str, Place]]:
        holder = self.origin or self
        for key, child in (node.fields or {}).items():
            path = prefix + key
            yield path, Place(holder, self.paths.get(path, path), child)
            yield from self._walk(child, f"{path}.")


class FileReference(Struct, frozen=True):
    """The fact that one file names another, in some of the runs that it describes."""

    by: str
    runs: frozenset[int]
    """The numbers of these runs; empty: all."""
    file: str


def counts_when_set_later(kind: str, key: str) -> bool:
    """Whether an attribute set after the object was created has the effect of an argument."""
    return kind == "peft" if kind not in TRAINERS else key in _READ_LATER
