"""The text form of permission rules, what they match, and which one wins."""

import pytest
from every_case import every_case

from palimpsest.coding.rules import (
    Rule,
    command_rule,
    command_specificity,
    deny_rules,
    domain_specificity,
    parse_rule,
    path_specificity,
    winner,
)
from palimpsest.core.errors import BadInput


@every_case(
    ("text", "rule"),
    [
        ("bash(git status)", Rule("bash", "git status")),
        ("bash(npm run test:*)", Rule("bash", "npm run test:*")),
        ("deny bash(rm:*)", Rule("bash", "rm:*", "deny")),
        ("ask edit(src/**)", Rule("edit", "src/**", "ask")),
        ("fetch(*.python.org)", Rule("fetch", "*.python.org")),
        ("deny *", Rule("*", "", "deny")),
        ("mcp.search", Rule("mcp.search")),
        ("bash(echo 'a (b)')", Rule("bash", "echo 'a (b)'")),
    ],
)
def test_a_rule_is_read_from_the_text_that_it_prints(text: str, rule: Rule) -> None:
    assert (parse_rule(text), str(rule)) == (rule, text)


@every_case(
    ("text", "said"),
    [
        ("", "not a rule"),
        ("bash(", "not a rule"),
        ("perhaps bash", "not a rule"),
        ("bash()", "the pattern of the rule is empty"),
        ("*(x)", "a rule for every tool has no pattern"),
        ("bash(echo 'a)", "cannot be split into words"),
        ("bash(:*)", "has no words"),
        ("fetch(https://a.org/x)", "is a domain"),
        ("a" * 3_000, "not a rule"),
    ],
)
def test_a_malformed_rule_is_an_error_that_says_why(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_rule(text)


@every_case(
    ("rule", "words", "matches"),
    [
        ("bash(git status)", "git status", True),
        ("bash(git status)", "git status -s", False),
        ("bash(git status)", "git -c a=b status", False),
        ("bash(git:*)", "git push", True),
        ("bash(git:*)", "gitk", False),
        ("bash(npm run test:*)", "npm run test:unit", False),
        ("bash(npm run *)", "npm run build", True),
        ("bash(npm run *)", "npm run build x", False),
        ("bash(rm:*)", "./rm x", False),
        ("bash(rm:*)", "/bin/rm x", False),
        ("deny bash(rm:*)", "/bin/rm x", True),
        ("ask bash(rm:*)", "./rm x", True),
        ("bash", "anything at all", True),
        ("*", "anything at all", True),
    ],
)
def test_a_command_rule_matches_words_and_never_a_prefix_of_the_text(rule: str, words: str, matches: bool) -> None:
    assert (command_specificity(parse_rule(rule), tuple(words.split())) is not None) is matches


@every_case(
    ("rule", "path", "matches"),
    [
        ("edit(src/**)", "src/a/b.py", True),
        ("edit(src)", "src/a.py", True),
        ("edit(src/*)", "src/a.py", True),
        ("edit(src/**)", "srcs/a.py", False),
        ("edit(*.py)", "src/a.py", False),
        ("edit(**/*.py)", "src/a.py", True),
        ("edit(.env)", ".ENV", False),
        ("deny edit(.env)", ".ENV", True),
        ("deny read(secret)", "secret/a\nb", True),
    ],
)
def test_a_path_rule_matches_the_path_in_the_project(rule: str, path: str, matches: bool) -> None:
    assert (path_specificity(parse_rule(rule), path) is not None) is matches


@pytest.mark.parametrize(
    ("rule", "domain", "matches"),
    [
        ("fetch(python.org)", "python.org", True),
        ("fetch(python.org)", "docs.python.org", False),
        ("fetch(*.python.org)", "docs.python.org", True),
        ("fetch(*.python.org)", "python.org", False),
        ("fetch(*.python.org)", "evilpython.org", False),
        ("fetch(python.org)", "python.org.evil.com", False),
    ],
)
def test_a_fetch_rule_matches_a_whole_domain(rule: str, domain: str, matches: bool) -> None:
    assert (domain_specificity(parse_rule(rule), domain) is not None) is matches


@every_case(
    ("rules", "wins"),
    [
        (("deny bash(git:*)", "bash(git push:*)"), "bash(git push:*)"),
        (("bash(git:*)", "deny bash(git push:*)"), "deny bash(git push:*)"),
        (("bash(git push:*)", "deny bash(git push:*)"), "deny bash(git push:*)"),
        (("bash(git push:*)", "ask bash(git push:*)"), "ask bash(git push:*)"),
        (("deny bash(git push:*)", "bash(git push origin)"), "bash(git push origin)"),
        (("deny bash(git push origin:*)", "bash(git push origin)"), "bash(git push origin)"),
        (("deny *", "bash"), "bash"),
        (("*", "deny bash"), "deny bash"),
        (("bash(git * origin)", "deny bash(git push *)"), "deny bash(git push *)"),
        (("bash(git pull)",), ""),
    ],
)
def test_the_most_specific_rule_wins_and_deny_wins_ties(rules: tuple[str, ...], wins: str) -> None:
    parsed = [parse_rule(text) for text in rules]
    assert str(winner((rule, command_specificity(rule, ("git", "push", "origin"))) for rule in parsed) or "") == wins
    assert str(winner((rule, command_specificity(rule, ("git", "push", "origin"))) for rule in reversed(parsed)) or "") == wins


def test_a_rule_for_a_command_is_offered_only_if_its_text_says_exactly_that_command() -> None:
    assert command_rule(("git", "commit", "-m", "a b"), open_end=False) == "bash(git commit -m 'a b')"
    assert command_rule(("git", "commit"), open_end=True) == "bash(git commit:*)"
    assert [command_rule(words, open_end=False) for words in ((), ("rm", "*"), ("x", "a:*"), ("x", "a\nb"), ("x", "y" * 2_000))] == [""] * 5


@pytest.mark.parametrize("text", ["bash(rm:*)", "ask edit", "?", "deny reed(.env)", "deny read([)"])
def test_a_project_can_only_deny_and_a_denial_that_cannot_be_read_is_not_left_out(text: str) -> None:
    assert deny_rules(("deny bash(rm:*)",)) == (Rule("bash", "rm:*", "deny"),)
    with pytest.raises(BadInput):
        deny_rules(("deny bash(rm:*)", text), tools=())


def test_a_project_cannot_hold_up_decisions_with_its_rules() -> None:
    with pytest.raises(BadInput, match="the project has 1,001 permission rules; at most 1,000 are used"):
        deny_rules(["deny read(a)"] * 1_001)
