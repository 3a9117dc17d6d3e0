"""A builder of module trees, in which equal modules are added together."""

from collections.abc import Sequence

from msgspec import Struct, field

from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Kind, Module, Part


class Tree(Struct, frozen=True):
    """A place in a module tree; all places of one tree add to the same list."""

    part: Part
    path: str = ""
    indices: tuple[Sequence[int], ...] = ()
    grown: list[Module] = field(default_factory=list)

    def at(self, name: str, part: Part | None = None) -> "Tree":
        """Go to a child module; an empty name stays here."""
        return replace(self, path=self._child(name), part=part or self.part)

    def each(self, name: str, indices: Sequence[int]) -> "Tree":
        """Go to the listed members of a module list, which are equal, all at once."""
        path = self._child(name) + ".{}"
        kept = indices if isinstance(indices, range) else tuple(indices)
        return replace(self, path=path, indices=(*self.indices, kept))

    def linear(self, name: str, outputs: int, inputs: int, *, bias: bool = False) -> None:
        """Add a linear layer."""
        self._add("linear", name, (outputs, inputs), outputs if bias else 0)

    def norm(self, name: str, *shape: int, bias: bool = False) -> None:
        """Add a normalisation with a weight of the given shape."""
        self._add("norm", name, shape, shape[0] if bias else 0)

    def embedding(self, name: str, rows: int, width: int, *, fixed: bool = False) -> None:
        """Add a lookup table; a fixed one is never trained."""
        self._add("embedding", name, (rows, width), 0, fixed=fixed)

    def conv(self, name: str, *shape: int, bias: bool = True) -> None:
        """Add a convolution with a weight of shape (outputs, inputs per group, kernel ...)."""
        self._add("conv", name, shape, shape[0] if bias else 0)

    def parameter(self, name: str, *shape: int) -> None:
        """Add a bare parameter under its own full name."""
        self._add("parameter", name, shape, 0)

    def modules(self) -> tuple[Module, ...]:
        """Everything added anywhere in this tree, in order."""
        return tuple(self.grown)

    def _child(self, name: str) -> str:
        if not name:
            return self.path
        return f"{self.path}.{name}" if self.path else name

    def _add(
        self, kind: Kind, name: str, shape: tuple[int, ...], bias: int, *, fixed: bool = False
    ) -> None:
        copies = 1
        for sequence in self.indices:
            copies *= len(sequence)
        if copies:
            path = self._child(name)
            self.grown.append(
                Module(path, kind, shape, self.part, bias, copies, self.indices, fixed)
            )


def where(flags: Sequence[bool]) -> tuple[int, ...]:
    """Positions of the true flags."""
    return tuple(position for position, flag in enumerate(flags) if flag)
