"""The releases of accelerate whose sources the rows were read from."""

from typing import Final

from tunec.compiler.releases import Package, Releases

PACKAGE: Final = "accelerate"
ACCELERATE: Final = Package(
    Releases(">=0.30,<1.16"),
    (
        *("0.30.1", "0.31.0", "0.32.1", "0.33.0", "0.34.2", "1.0.1", "1.1.1", "1.2.1", "1.3.0"),
        *("1.4.0", "1.5.2", "1.6.0", "1.7.0", "1.8.1", "1.9.0", "1.10.1", "1.11.0", "1.12.0"),
        *("1.13.0", "1.14.0", "1.15.0"),
    ),
)
