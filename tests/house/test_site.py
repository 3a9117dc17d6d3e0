"""The site: every page is reached, every link holds, and a fault in either ends the build."""

import pytest
import yaml
from docs.built_links import faults
from docs.readme import ROOT
from docs.site import SiteFault, gathered, llms, main, read_settings, relinked


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return gathered(ROOT)


def entries(nav) -> list[str]:
    inside = [value for entry in nav for value in entry.values()]
    return [
        each for value in inside for each in ([value] if isinstance(value, str) else entries(value))
    ]


def test_navigation_names_pages_and_misses_none_that_is_written_for_readers(pages):
    nav = entries(read_settings(ROOT)["nav"])
    assert set(nav) <= set(pages)
    assert len(nav) == len(set(nav))
    first = {path for path in pages if path.startswith("docs/") and "/decisions/" not in path}
    assert first | {path for path in pages if path.startswith("examples/")} <= set(nav)


def test_all_pages_are_listed_for_language_models(pages):
    text = llms(read_settings(ROOT), pages)
    assert [path for path in pages if f"]({path})" not in text] == []
    assert "## Guide\n\n- [First run in five minutes](docs/guide/first-run.md)" in text


def test_links_lead_to_places_of_the_site():
    text = "[a](../README.md#why) [b](../schemas/units.py) ![c](guide/x.svg) `[d](e.md)` [f](#g)"
    expected = "[a](../index.md#why) b ![c](guide/x.svg) `[d](e.md)` [f](#g)"
    assert relinked(text, "docs/cli.md", ROOT) == expected
    assert relinked("[`x`](examples/five-lines)", "README.md", ROOT) == (
        "[`x`](examples/five-lines/index.md)"
    )


def site(folder, page: str) -> None:
    settings = read_settings(ROOT) | {"nav": [{"Start": "index.md"}]}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    (folder / "README.md").write_text(f"# First\n\nSee [more](docs/more.md).\n\n{page}\n")
    (folder / "docs").mkdir()
    (folder / "docs/more.md").write_text("# More\n\nBack to [first](../README.md).\n")


def test_a_link_to_a_file_that_is_missing_is_a_fault(tmp_path):
    site(tmp_path, "[gone](docs/gone.md)")
    with pytest.raises(SiteFault, match=r"^README\.md: no file docs/gone\.md$"):
        gathered(tmp_path)


def test_a_site_is_built_with_pages_as_markdown_and_without_broken_links(tmp_path):
    pytest.importorskip("zensical", reason="zensical is not installed (pip install '.[site]')")
    site(tmp_path, "Text.")
    assert main([], tmp_path) == 0
    html = tmp_path / "build/site/html"
    assert "Back to" in (html / "docs/more/index.html").read_text()
    assert (html / "docs/more.md").read_text().startswith("# More\n\nBack to [first](../index.md)")
    assert "[First](index.md)" in (html / "llms.txt").read_text()
    assert "More" in (html / "search.json").read_text()


def test_a_built_link_to_nothing_is_a_fault(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/index.html").write_text('<a href="../">up</a><a href="#b">b</a><p id="b">')
    (tmp_path / "index.html").write_text(
        '<a href="a/#b"></a><a href="a/#c"></a><img src="d.png"><a href="https://e.org/"></a>'
    )
    assert faults(tmp_path) == ["index.html: a/#c leads nowhere", "index.html: d.png leads nowhere"]


@pytest.mark.nightly
def test_the_whole_site_is_built(capfd):
    pytest.importorskip("zensical", reason="zensical is not installed (pip install '.[site]')")
    assert main([]) == 0, capfd.readouterr().err
