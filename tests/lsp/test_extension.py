"""The extension for VS Code says what the server and the package say."""

import json
import re
from pathlib import Path

from tunec.compiler.version import __version__

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"


def test_the_extension_is_of_the_same_version_and_starts_where_it_listens():
    package = json.loads((FOLDER / "package.json").read_text("utf-8"))
    source = (FOLDER / "src/extension.js").read_text("utf-8")
    assert package["version"] == __version__
    listed = re.search(r"LANGUAGES = (\[[^\]]*\])", source)
    languages = json.loads(listed[1])
    started = {each.removeprefix("onLanguage:") for each in package["activationEvents"]}
    assert {"yaml", "json"} <= started <= set(languages)
    commands = {each["command"] for each in package["contributes"]["commands"]}
    assert all(f'registerCommand("{each}"' in source for each in commands)
    settings = package["contributes"]["configuration"]["properties"]
    assert settings["tunec.command"]["default"] == ["tunec"]
