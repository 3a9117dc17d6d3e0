"""A document of a run, and its keys: values, where they stand, and edits at these places."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Edit, Fix, Label
from tunec.compiler.frontend.nodes import Node, place, plain
from tunec.compiler.lints.edits import Source, add_key, remove_key, rename_key, replace_value
from tunec.compiler.target import File, Found, Target
from tunec.schemas.source import Span, start_of


class Place(Struct, frozen=True):
    """A key with its value, as one document says it."""

    document: "Document"
    """The file that holds it."""
    path: str
    """The key's dotted path in that file, which for a view (DeepSpeed's keys in an accelerate
    file) differs from the path that it was asked by."""
    node: Node

    @property
    def value(self) -> Any:
        """The value as data."""
        return plain(self.node)

    @property
    def first_word(self) -> str:
        """The value, or the first of a list, as text: of a command, what it starts."""
        words = self.value if isinstance(self.value, list) else [self.value]
        return str(words[0]) if words else ""

    @property
    def word(self) -> str | None:
        """The value where it is text; None where it is anything else."""
        value = self.value
        return value if isinstance(value, str) else None

    @property
    def span(self) -> Span:
        """Where the value stands, or its key where the value fills several lines."""
        return place(self.node)

    @property
    def key_span(self) -> Span:
        """Where the key stands; the value where there is no key (an item of a list)."""
        return self.node.key_span or self.node.span

    def label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the value."""
        return Label(text, self.span, self.path, primary)

    def key_label(self, text: str = "", *, primary: bool = True) -> Label:
        """A label at the key."""
        return Label(text, self.key_span, self.path, primary)

    def replaced(self, value: Any) -> Edit:
        """The edit that writes another value here, in the words of the file's format."""
        return replace_value(self.document.source, self.node, value)

    def renamed(self, key: str) -> Edit:
        """The edit that gives the key another name; the value stays."""
        return rename_key(self.document.source, self.node, key)

    def removed(self) -> Edit:
        """The edit that takes the key and its value out, with its line or its comma."""
        return remove_key(self.document.source, self.node)


def meant(place: Place, name: str | None) -> tuple[str, Fix | None]:
    """The help and the fix for an unknown key: the name that was meant, or no such key."""
    if name is None:
        return "remove it", None
    return f"did you mean `{name}`?", Fix((place.renamed(name),), "unsafe")


def also(place: Place | None, text: str = "") -> tuple[Label, ...]:
    """The label at another place of a finding, where there is one."""
    return () if place is None else (place.label(text, primary=False),)


TRL: Final = ("sft", "dpo", "grpo", "kto", "reward", "rloo", "gkd", "ppo")
"""Kinds that are a config of TRL's, with its ModelConfig beside it."""
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
"""Fields that the trainer reads when it is made, or trains, and `__post_init__` of the arguments
does not: transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`."""
READ_ONCE: Final = frozenset({"bf16", "fp16"})
"""Fields of which `__post_init__` makes what the trainer reads: the same, `mixed_precision`; before
5.0 the variable ACCELERATE_MIXED_PRECISION."""

_HANDED_ON: Final = ("glm4",)
"""Kinds whose block for another reader is given to it as it stands: `training_args` of GLM-4's
configuration to Seq2SeqTrainingArguments."""

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {"trainer": TRAINERS}
"""Names under which `LintContext` finds documents of several kinds."""


def families_of(kind: str) -> tuple[str, ...]:
    """The families that hold a kind."""
    return tuple(name for name, kinds in FAMILIES.items() if kind in kinds)


Test = Callable[[str, Any], bool]
"""Of a path and the value there, and of nothing else."""


class Document(Struct, frozen=True, eq=False, dict=True):
    """One file of a run with its keys. Equal only to itself."""

    name: str
    """The file as it was named, or as the file that refers to it names it."""
    kind: str
    """Whose keys it holds: `deepspeed`, `hf`, `peft`, `model`, `sft`, `dpo`, `grpo`, `accelerate`,
    `axolotl`, `llamafactory`, `simpletuner`, `launch`, or the name of another reader's target."""
    format: str
    """`json`, `yaml`, `toml`, `env`, `shell` or `python`: in what the file is written."""
    text: str
    root: Node
    target: Target | None = None
    """Whose table reads it; None: keys are known, slots are not (a view)."""
    file: File | None = None
    origin: "Document | None" = None
    """The document that this is a view of: the same places under another dialect's keys."""
    unknown: frozenset[str] = frozenset()
    """Keys that are given a value which only running the file would tell."""
    hidden: Mapping[str, Node] = field(default_factory=dict)
    """Those of them at the top that are written there."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """For a view: the path in `origin` of each of its keys."""
    runs: frozenset[int] = frozenset()
    """Of a file that holds alternatives, the runs that this is of, by number; none: all."""
    folder: str = ""
    """Of a command, where it is started, from where its script is."""

    __repr__ = object.__repr__

    @property
    def is_view(self) -> bool:
        """Whether another document holds these keys under other names."""
        return self.origin is not None

    @property
    def alternatives(self) -> frozenset[int]:
        """The runs of its file that a document, or what it is a view of, belongs to; none: all."""
        return self.runs if self.origin is None else self.origin.alternatives

    @property
    def is_partial(self) -> bool:
        """Whether this is a view that does not hold all that its reader is given."""
        return self.origin is not None and self.origin.kind not in _HANDED_ON

    @property
    def is_compiled(self) -> bool:
        """Whether its head says that tunec wrote it, from a plan whose keys go together."""
        second = self.text.find("\n") + 1
        return any(self.text.startswith("# tunec ", at) for at in (0, second))

    @property
    def source(self) -> Source:
        """The text with what edits of it need."""
        return Source(self.name, self.format, self.text)

    @cached_property
    def found(self) -> Mapping[str, Place]:
        """Every key by dotted path, mappings and what they hold alike, in the file's order."""
        return dict(self._walk(self.root, ""))

    @cached_property
    def named(self) -> Mapping[str, Place]:
        """Every key, also those at the top whose value is unknown."""
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
        """Every key with its value in words."""
        return {path: repr(place.value) for path, place in self.found.items()}

    @property
    def keys(self) -> tuple[str, ...]:
        """Every dotted path, in the file's order."""
        return tuple(self.found)

    def get(self, path: str) -> Place | None:
        """The place of a dotted path, if the document says it."""
        return self.found.get(path)

    def value(self, path: str, otherwise: Any = None) -> Any:
        """What the document itself says at a path."""
        found = self.found.get(path)
        return otherwise if found is None else found.value

    def hides(self, *keys: str) -> bool:
        """Whether one of some keys has a value that is known only by running the file."""
        return not self.unknown.isdisjoint(keys)

    def where(self, test: Test) -> Mapping[str, Place]:
        """The keys whose place has a path and a value that pass a test, in the file's order.

        What looks for few values in many asks so: then it has to look again only where others pass.
        """
        return {key: at for key, at in self.found.items() if test(at.path, at.value)}

    def added(self, path: str, value: Any) -> Edit | None:
        """The edit that writes a key which is not there; None where its place cannot be found."""
        return None if self.is_view else add_key(self.source, self.root, path, value)

    def start(self) -> Span:
        """The first place of the file, for what is about it as a whole."""
        return start_of(self.name)

    def lacking(self, key: str) -> Label:
        """The beginning of a file, for what speaks of a key that it does not have."""
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


class Named(Struct, frozen=True):
    """That a file names another one, in some of the runs that it describes."""

    by: str
    runs: frozenset[int]
    """By number; none: in all."""
    file: str


def counts_when_set_later(kind: str, key: str) -> bool:
    """Whether an attribute that is set after the object was made is as good as an argument."""
    return kind == "peft" if kind not in TRAINERS else key in _READ_LATER
