"""Frozen dataclasses that cost little to define: their methods are made when they are first used.

`dataclasses` writes and compiles the source of six methods for each class as it is defined, which
was a fifth of the time to start. A class made here is a dataclass in every respect; `__init__` is
compiled at the first look at it, and the other methods need no source of their own.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """`dataclasses.dataclass`, but quick where it is frozen, has slots and nothing unusual."""
        if cls is None:
            return lambda later: dataclass(later, **options)
        if cls.__doc__ is None:
            # without one, `dataclasses` works out the signature to make one of it: 3 ms
            cls.__doc__ = cls.__name__
        if not _is_plain(cls, options):
            return dataclasses.dataclass(**options)(cls)
        given = frozenset(cls.__dict__)
        only_slots = {**options, "frozen": False, "init": False, "repr": False, "eq": False}
        kept = given | ({"__eq__", "__hash__"} if options.get("eq") is False else set())
        return _completed(dataclasses.dataclass(**only_slots)(cls), kept)


def _is_plain(cls: type, options: dict[str, Any]) -> bool:
    asked = dict(options)
    plain = asked.pop("frozen", False) and asked.pop("slots", False)
    asked.pop("kw_only", None)
    asked.pop("eq", None)
    written = {"__init__", "__eq__", "__setattr__", "__delattr__", "__getstate__"}
    alone = not any(hasattr(base, "__dataclass_fields__") for base in cls.__mro__[1:])
    return bool(plain and not asked and alone and not written & set(cls.__dict__))


def _completed(cls: type, given: frozenset[str]) -> type:
    """Give a class the methods that are neither written in it nor left to `object`."""
    every = fields(cls)
    parameters: Any = cls.__dataclass_params__  # type: ignore[attr-defined]
    parameters.frozen = parameters.init = parameters.repr = True
    parameters.eq = "__eq__" not in given
    methods = {
        "__init__": _Init(cls, every),
        **_identity(every),
        **_refusal(cls, every),
        **_pickling(every),
    }
    methods["__repr__"] = _repr(every)
    for name, method in methods.items():
        if name not in given:
            setattr(cls, name, method)
    return cls


class _Init:
    """Stands for `__init__` until somebody looks."""

    def __init__(self, cls: type, every: tuple[Field[Any], ...]) -> None:
        self._cls = cls
        self._every = every

    def __get__(self, instance: object, owner: type) -> Any:
        made = _init(self._cls, self._every)
        type.__setattr__(self._cls, "__init__", made)
        return made.__get__(instance, owner)


_FACTORY: Final = object()
"""The default of a parameter whose field has a factory."""


def _init(cls: type, every: tuple[Field[Any], ...]) -> Any:
    """Compile `__init__` as `dataclasses` would: same parameters, same order, same defaults."""
    known: dict[str, Any] = {"_FACTORY": _FACTORY}
    plain: list[str] = []
    keyword: list[str] = []
    body: list[str] = []
    for each in every:
        name, value = each.name, each.name
        parameter = name
        if each.default is not MISSING:
            known[f"_d_{name}"] = each.default
            parameter = f"{name}=_d_{name}"
        elif each.default_factory is not MISSING:
            known[f"_d_{name}"] = each.default_factory
            parameter = f"{name}=_FACTORY"
            value = f"_d_{name}() if {name} is _FACTORY else {name}"
        if each.init:
            (keyword if each.kw_only else plain).append(parameter)
        else:
            value = value if each.default is MISSING else f"_d_{name}"
        # the slot's own setter: half the time of object.__setattr__, which has to look for it
        known[f"_set_{name}"] = cls.__dict__[name].__set__
        body.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    listed = ", ".join(["self", *plain, *(["*", *keyword] if keyword else [])])
    source = f"def __init__({listed}):\n" + "\n".join(body or [" pass"])
    exec(source, known)  # noqa: S102  as `dataclasses` does: the names are those of the class
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    made.__annotations__ = {each.name: each.type for each in every if each.init} | {"return": None}
    return made


def _identity(every: tuple[Field[Any], ...]) -> dict[str, Any]:
    """Equality and hash by the values of the fields, in their order."""
    compared = _values([each.name for each in every if each.compare])
    hashed = _values([e.name for e in every if (e.compare if e.hash is None else e.hash)])

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if other.__class__ is self.__class__:
            return bool(compared(self) == compared(other))
        return NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _repr(every: tuple[Field[Any], ...]) -> Any:
    shown = [each.name for each in every if each.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    return __repr__


def _refusal(cls: type, every: tuple[Field[Any], ...]) -> dict[str, Any]:
    names = frozenset(each.name for each in every)

    def __setattr__(self: object, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)  # type: ignore[arg-type]

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)  # type: ignore[arg-type]

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _pickling(every: tuple[Field[Any], ...]) -> dict[str, Any]:
    names = [each.name for each in every]

    def __getstate__(self: object) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return {"__getstate__": __getstate__, "__setstate__": __setstate__}
