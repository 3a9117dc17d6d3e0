"""The releases of ai-toolkit that are read, and the sources of facts about them."""

from typing import Final

from tunec.compiler.releases import Releases

PACKAGE: Final = "ai-toolkit"
COMMITS: Final = {
    "0.2.0": "aceb3a0f25d4fd579dd3ff24db09b64c54255045",
    "0.8.2": "853ffaf207ec06d05a9b2700a302bf22556a04ae",
    "0.12.26": "27a03a91f23eb1b757d5ec2e80ee3e129cfcc350",
}
"""The commits of ostris/ai-toolkit that were read, by the version in version.py, as it has no
tags."""
RELEASES: Final = tuple(COMMITS)
SUPPORTED: Final = Releases(">=0.2,<0.13")
SOURCE: Final = "ostris/ai-toolkit 0.2.0 to 0.12.26"
