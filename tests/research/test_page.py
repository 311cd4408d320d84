"""An experiment's page as one file."""

from pathlib import Path

from ringfence.research.page import write_single_page


def test_an_experiments_page_becomes_one_file_with_its_words_tables_and_figures(tmp_path: Path) -> None:
    (tmp_path / "curve.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')
    page = tmp_path / "index.md"
    page.write_text("# Title & more\n\n![A curve](curve.svg)\n\n<b>raw</b>\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n")
    html = write_single_page(page).read_text()
    assert "<h1>Title &amp; more</h1>" in html
    assert 'src="data:image/svg+xml;base64,' in html
    assert 'alt="A curve"' in html
    assert "&lt;b&gt;raw&lt;/b&gt;" in html
    assert "<td>2</td>" in html
    assert "style=" not in html.split("<body>")[1]
