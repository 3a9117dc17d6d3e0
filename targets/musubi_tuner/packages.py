"""The releases of musubi-tuner that are read, and the sources about them."""

from typing import Final

from tunec.compiler.releases import Releases

PACKAGE: Final = "musubi-tuner"
COMMITS: Final = {
    "0.2.0": "5f57a1508b2f61a6fa28af99f1286996b80916bb",
    "0.2.15": "8ec957745626317e39f04f8547910e353553354b",
    "0.3.4": "30c658c4f4b0bf05038b3346eff9670259b10fc7",
}
"""The commits of kohya-ss/musubi-tuner that were read: its tags, which are on no package index."""
RELEASES: Final = tuple(COMMITS)
SUPPORTED: Final = Releases(">=0.2,<0.4")
SOURCE: Final = "kohya-ss/musubi-tuner 0.2.0 to 0.3.4"
FOLDER: Final = "src/musubi_tuner"
