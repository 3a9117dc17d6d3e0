"""The releases of sd-scripts that are read, and the sources about them."""

from typing import Final

from tunec.compiler.releases import Releases

PACKAGE: Final = "sd-scripts"
COMMITS: Final = {
    "0.8.8": "e5ac09574928ec02fba5fe78267764d26bb7faa6",
    "0.9.1": "8f4ee8fc343b047965cd8976fca65c3a35b7593a",
    "0.10.1": "48d368fa557731ad0488c07304dfeba8c07910eb",
}
"""The commits of kohya-ss/sd-scripts that were read: its tags, which are on no package index."""
RELEASES: Final = tuple(COMMITS)
SUPPORTED: Final = Releases(">=0.8,<0.11")
SOURCE: Final = "kohya-ss/sd-scripts 0.8.8 to 0.10.1"
