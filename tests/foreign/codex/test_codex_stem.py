import pytest

from palimpsest.exchange.codex.lines import slug_of, stem_of


@pytest.mark.parametrize(
    ("thread", "slug", "stem"),
    [
        ("0194f5a6-89ab-7cde-8123-456789abcdef", "", "2025-02-11T15-35-19-jqmb"),
        ("0194f5a6-89ab-7cde-8123-456789abcdef", "Fix: Memory/Prompt!!", "2025-02-11T15-35-19-jqmb-fix__memory_prompt"),
        ("01a1ddf5-2e2f-7100-9d45-93fb0cf6fa03", "synthetic-demo", "2026-11-15T06-46-35-IEVl-synthetic_demo"),
    ],
)
@pytest.mark.states("CX-58")
def test_summary_file_stems_match_the_three_vectors(thread: str, slug: str, stem: str) -> None:
    assert stem_of(thread, slug) == stem


def test_a_thread_whose_id_has_no_time_is_named_by_its_start() -> None:
    assert stem_of("plain", at=1_794_724_495_281) == "2026-11-15T06-34-55-dU7M"


def test_a_slug_keeps_sixty_letters_and_ends_with_one() -> None:
    assert slug_of("A" * 59 + "!!b") == "a" * 59
    assert slug_of("é???") == ""
