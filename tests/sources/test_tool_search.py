"""The search for deferred tools, by words of names and descriptions, in English and Chinese."""

from palimpsest.sources.progress import search_tools, words
from palimpsest.wire.request import Tool

TOOLS = (
    Tool("mcp__git__createBranch", "Create a branch in the repository."),
    Tool("WebFetch", "Fetch a page from the web and return its text."),
    Tool("mcp__mail__send", "Send a message. Can attach a page or a file from the repository."),
    Tool("天气", "查询城市天气预报"),
)


def names(query: str, most: int = 5) -> list[str]:
    return [tool.name for tool in search_tools(query, TOOLS, most)]


def test_names_are_taken_apart_and_scripts_without_spaces_give_pairs() -> None:
    assert words("mcp__git__createBranch HTTPServer2") == ["mcp", "git", "create", "branch", "http", "server", "2"]
    assert words("天气预报 雨") == ["天气", "气预", "预报", "雨"]


def test_the_best_match_comes_first_and_what_shares_no_word_is_not_found() -> None:
    assert names("fetch a web page")[0] == "WebFetch"
    assert names("branch") == ["mcp__git__createBranch"]
    assert names("repository branch")[0] == "mcp__git__createBranch"
    assert names("城市天气") == ["天气"]
    assert names("unrelated") == []
    assert names("") == []


def test_a_word_in_the_name_weighs_more_than_one_in_the_description() -> None:
    tools = (Tool("alpha", "send a thing away now"), Tool("send", "a thing goes away now"))

    assert [tool.name for tool in search_tools("send", tools)] == ["send", "alpha"]


def test_exact_names_are_selected_and_the_number_is_bounded() -> None:
    assert names("select:WebFetch, 天气,missing,WebFetch") == ["WebFetch", "天气"]
    assert names("a the page repository", 1) == [names("a the page repository")[0]]
    assert search_tools("x", ()) == ()
