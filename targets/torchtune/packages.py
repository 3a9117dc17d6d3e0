"""The releases of torchtune that are read, and the sources about them."""

from typing import Final

from tunec.compiler.releases import Releases

PACKAGE: Final = "torchtune"
COMMITS: Final = {
    "0.5.0": "0bb00a47b12b7a900ed797d1f9a2ff5a997774c3",
    "0.6.1": "a6290a5b40758f13bca61c386bc8756a49ef417e",
}
"""The commits of pytorch/torchtune that were read: its tags."""
RELEASES: Final = tuple(COMMITS)
SUPPORTED: Final = Releases(">=0.5,<0.7")
SOURCE: Final = "pytorch/torchtune 0.5.0 to 0.6.1"
