"""A list of prices: what one node of a cluster costs an hour, by region, read at one date.

A list says where it was read and when, since prices change. Nothing is fetched: a list is as old as
its date, and whoever has newer prices gives a file of the same shape.
"""

from datetime import date
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tunec.schemas.shape import Shape


def _day(value: object) -> object:
    return date.fromisoformat(value) if isinstance(value, str) else value


Day = Annotated[date, BeforeValidator(_day)]
"""A day, written as `2026-07-20`."""

Dollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Dollars an hour, for one node."""


class Price(Shape):
    """What one node costs an hour in one region."""

    on_demand: Dollars | None = None
    """Without a commitment, for as long as it is wanted."""
    spot: Dollars | None = None
    """Where the provider may take the machine back."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.on_demand is None and self.spot is None:
            raise ValueError("give `on_demand`, `spot`, or both")
        if (
            self.on_demand is not None
            and self.spot is not None
            and self.spot > self.on_demand + _CENT
        ):
            raise ValueError(f"spot costs {self.spot}, more than {self.on_demand} on demand")
        return self


_CENT: Final = 0.01
"""Spot prices are published rounded; one without a discount may exceed the other by that."""


class PriceList(Shape):
    """Prices of one provider, as they were read at one date."""

    provider: str = Field(min_length=1)
    """Who is paid: `aws`, `gcp`, `azure`, or a name of one's own."""
    currency: Literal["USD"] = "USD"
    """Costs are compared in one currency."""
    dated: Day
    """When the prices were read, such as 2026-07-20; with `is_earliest`, the first day on which
    they can have been."""
    is_earliest: bool = False
    """Whether only that is known: they were read on that day or later."""
    source: str = ""
    """Where they were read: repository, commit and path, or the title of a page."""
    notes: tuple[str, ...] = ()
    """What else is to be known of them."""
    instances: dict[str, str] = {}
    """The provider's own name of a machine by the cluster's, where the two differ."""
    regions: dict[str, dict[str, Price]] = Field(min_length=1)
    """By region, then by the name of the cluster: `p5.48xlarge`, `a100-80g-x8`. A price holds for
    one node."""

    @property
    def day(self) -> str:
        """The date as it is written: `2026-07-20`, `2025-09-09 or later`."""
        return f"{self.dated.isoformat()}{' or later' if self.is_earliest else ''}"
