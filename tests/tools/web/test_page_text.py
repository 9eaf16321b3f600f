"""HTML as text, also of pages that are malformed or hostile."""

from every_case import every_case

from palimpsest.coding.tools.page_text import page_text

URL = "https://docs.example/a/index.html"


@every_case(
    ("html", "expected"),
    [
        ("", ("", "")),
        ("plain words", ("", "plain words")),
        ("<p>a<p>b", ("", "a\n\nb")),
        ("</p></a></pre>words", ("", "words")),
        ('<a href="x">one <a href="y">two</a>', ("", "[one](https://docs.example/a/x)[two](https://docs.example/a/y)")),
        ('<a href="#part">here</a> <a href="http://[bad">there</a>', ("", "here there")),
        ("<title>T</title><svg><title>no</title></svg>b", ("T", "b")),
        ("<script>if (a < b) { x('</p>') }</script>after", ("", "after")),
        ("salt &amp", ("", "salt &")),
        ("<pre>  two\n    four</pre>", ("", "two\n    four")),
        ("&lt;b&gt; &amp; &nbsp; &#128512;", ("", "<b> & 😀")),
    ],
)
def test_the_text_of_a_page(html: str, expected: tuple[str, str]) -> None:
    assert page_text(html, URL) == expected


def test_of_malformed_html_the_text_before_it_is_kept() -> None:
    # Some versions of the parser refuse this, others skip it.
    assert page_text("<p>before</p><![<![after", URL)[1].startswith("before")


@every_case("piece", ["<!--", "<a href=x>", "<div>", "</div>", "<a b='", "&", "<script>", "<", "<li><pre>"])
def test_hostile_markup_is_read_in_bounded_time_and_size(piece: str) -> None:
    # Quadratic work on this many pieces would take minutes.
    html = piece * 100_000
    _, text = page_text(html, URL)
    assert len(text) <= len(html)
