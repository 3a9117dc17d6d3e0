"""A price list: the price of one node of a cluster per hour, by region, at one date.

A list names its source and its date, since prices change. Nothing is fetched; users with newer
prices supply a file in this format.
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
"""Dollars per hour for one node."""


class Price(Shape):
    """The price of one node per hour in one region."""

    on_demand: Dollars | None = None
    """Without a commitment."""
    spot: Dollars | None = None
    """For a machine that the provider may take back."""

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
"""Spot prices are rounded, so one without a discount may exceed the on-demand price by this
much."""


class PriceList(Shape):
    """Prices of one provider at one date."""

    provider: str = Field(min_length=1)
    """The provider: `aws`, `gcp`, `azure`, or a name of your own."""
    currency: Literal["USD"] = "USD"
    """Costs are compared in one currency."""
    dated: Day
    """The date of the prices, such as 2026-07-20; with `is_earliest`, the earliest possible
    date."""
    is_earliest: bool = False
    """Whether only the earliest possible date is known."""
    source: str = ""
    """The source: repository, commit and path, or the title of a page."""
    notes: tuple[str, ...] = ()
    """Further facts about the prices."""
    instances: dict[str, str] = {}
    """The provider's name of a machine by the cluster's name, if they differ."""
    regions: dict[str, dict[str, Price]] = Field(min_length=1)
    """Prices for one node, by region and then by cluster: `p5.48xlarge`, `a100-80g-x8`."""

    @property
    def day(self) -> str:
        """The date as it is written: `2026-07-20`, `2025-09-09 or later`."""
        return f"{self.dated.isoformat()}{' or later' if self.is_earliest else ''}"
