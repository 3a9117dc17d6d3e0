"""The releases of Axolotl whose sources the rows were read from."""

from typing import Final

from tunec.compiler.releases import Releases

PACKAGE: Final = "axolotl"
RELEASES: Final = ("0.8.1", "0.13.2", "0.19.0")
SUPPORTED: Final = Releases(">=0.8,<0.20")
