"""What was said, told the other way round or of another thing, goes; told as it was said, it stays (PA-17)."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from palimpsest.audit import alternatives, bounds, deeds, manner, phrases, polarity, sequence, swaps, synonyms, synonyms_chinese
from palimpsest.audit.provenance import supported
from palimpsest.audit.sequence import ordered_otherwise, waits_alike
from palimpsest.audit.swaps import swaps as has_another

RULES = (alternatives, bounds, deeds, manner, phrases, polarity, sequence, swaps, synonyms, synonyms_chinese)
FOLDER = Path(__file__).parent / "flipped"
BESIDE = {
    "english": (
        "The footer looks odd on my phone.",
        "Thanks, that was quick.",
        "Explain how the token refresh works.",
        "The sidebar is missing an icon; please draw one.",
    ),
    "chinese": ("页脚在手机上有点怪。", "谢谢，挺快的。", "讲讲令牌刷新的原理。", "侧边栏少一个图标，画一个。"),
}
LANGUAGES = tuple(BESIDE)


def words_of(language: str) -> dict[str, list[str]]:
    """The words that stand for each other in a place of a template."""
    lines = (FOLDER / f"{language}_words.txt").read_text(encoding="utf-8").splitlines()
    return {place: words.split(" | ") for place, _, words in (line.partition(": ") for line in lines)}


def filled(words: dict[str, list[str]], turn: int) -> dict[str, str]:
    """One word for each place, and the two that follow it as others of its kind."""
    found = {
        f"{place}{number}": kinds[(turn + step) % len(kinds)]
        for place, kinds in words.items()
        for step, number in enumerate(("", "2", "3"))
    }
    found["verb"], found["verbing"], found["verbed"] = (found["verb"].split("/") * 3)[:3]
    first, _, last = found["file"].rpartition("/")
    found["folder"] = f"{first.rpartition('/')[0]}/elsewhere/{last}"
    found["Nouns"] = found["nouns"].capitalize()
    return found


def told(language: str) -> Iterator[tuple[str, str, str]]:
    """What was said, how a line tells it (`+` as it was, or what it turns round), and the line."""
    words = words_of(language)
    for place, template in enumerate((FOLDER / f"{language}.txt").read_text(encoding="utf-8").strip().split("\n\n")):
        said, *lines = template.split("\n")
        for turn in range(len(words["num"])):
            fill = filled(words, place + turn)
            for kind, _, line in (line.partition(" ") for line in lines):
                yield said.removeprefix("> ").format(**fill), kind, line.format(**fill)


def stays(language: str, said: str, line: str) -> bool:
    before, after = BESIDE[language][:2], BESIDE[language][2:]
    return supported(line, (*before, said, *after))


@pytest.mark.parametrize("language", LANGUAGES)
def test_pa_17_what_is_told_the_other_way_round_or_of_another_thing_goes(language: str) -> None:
    false = [(said, line) for said, kind, line in told(language) if kind != "+"]
    left = [(said, line) for said, line in false if stays(language, said, line)]
    assert len(false) > 900
    assert len(left) <= 0.02 * len(false), left[:20]


@pytest.mark.parametrize("language", LANGUAGES)
def test_pa_17_what_is_told_as_it_was_said_stays(language: str) -> None:
    true = [(said, line) for said, kind, line in told(language) if kind == "+"]
    lost = [(said, line) for said, line in true if not stays(language, said, line)]
    assert len(true) > 600
    assert len(lost) <= 0.05 * len(true), lost[:20]


@pytest.mark.parametrize("language", LANGUAGES)
def test_of_each_kind_nearly_all_goes(language: str) -> None:
    seen: dict[str, list[bool]] = {}
    for said, kind, line in told(language):
        if kind != "+":
            seen.setdefault(kind, []).append(stays(language, said, line))
    assert [kind for kind, left in seen.items() if sum(left) > 0.05 * len(left)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_line_stands_in_the_words_that_rules_are_made_of(language: str) -> None:
    rules = "\n".join(inspect.getsource(module) for module in RULES).casefold()
    assert [line for _, _, line in told(language) if line.casefold().rstrip(".。") in rules] == []


def test_the_same_words_around_another_thing_are_seen() -> None:
    assert has_another("polish the brass hinge of the gate", "polish the copper hinge of the gate")
    assert not has_another("polish the hinge", "polish the copper hinge of the gate")


def test_what_comes_first_may_not_come_last() -> None:
    assert ordered_otherwise("water the ferns after the repotting", "water the ferns before the repotting")
    assert not ordered_otherwise("before the repotting, water the ferns", "water the ferns before the repotting")
    assert ordered_otherwise("rename Fern to Moss", "rename Moss to Fern")


def test_what_waits_for_something_comes_after_it() -> None:
    assert waits_alike("the gardener prunes before the hedge is painted", "do not paint the hedge until the gardener prunes")
    assert not waits_alike("the hedge is painted before the gardener prunes", "do not paint the hedge until the gardener prunes")


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("Put the seed list into /srv/garden/list.csv", "The user wants the seed list in /opt/garden2/list.csv"),
        ("Nobody waters the orchids without asking me.", "The user allowed watering the orchids without asking."),
        ("种子清单写到 /srv/garden/list.csv", "用户要求把种子清单写到 /opt/other/list.csv"),
    ],
)
def test_pa_17_another_folder_or_leave_not_given_goes(said: str, line: str) -> None:
    assert not supported(line, (said,))
