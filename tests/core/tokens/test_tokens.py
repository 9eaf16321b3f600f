"""The estimator against the exact tokenizer, and the calibration with reported usage."""

import base64
import json
import random

import msgspec
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st
from rs_bpe.bpe import openai  # type: ignore[import-not-found]  # a compiled module without stubs

from palimpsest.core.tokens import Calibration, estimate, estimate_bytes, family_of, learn

PROSE = """
The harbour wakes before the town does. By five the boats that went out at dusk are back under the crane, and the first lorries
wait with their engines running while the crews argue about the price of mackerel. Nobody writes anything down; a nod is a
contract here, and everyone remembers who broke one eleven winters ago. When the tide turns, the whole scene folds up within
minutes, and by the time the school bus stops at the chapel there is only the smell, a gull on each bollard, and the slow
sound of water working at the stones of the old quay.
"""
CODE = '''
class Window:
    """Keeps the newest readings of a sensor."""

    def __init__(self, size: int = 32) -> None:
        self.size = size
        self.readings: list[float] = []

    def add(self, reading: float) -> None:
        self.readings.append(reading)
        if len(self.readings) > self.size:
            del self.readings[0]

    def mean(self) -> float:
        if not self.readings:
            raise ValueError("no readings yet")
        return sum(self.readings) / len(self.readings)

    def outliers(self, limit: float = 3.0) -> list[float]:
        mean = self.mean()
        return [reading for reading in self.readings if abs(reading - mean) > limit]
'''
CHINESE = """
港口比小镇醒得早。凌晨五点，昨天傍晚出海的船都已经回到吊车下面，第一批卡车开着发动机等在旁边，船员们还在为鱼的价格争论。
这里没有人写合同，点头就算数，谁在十一年前的冬天说话不算话，大家到现在都记得。潮水一转，整个场面几分钟之内就散了，
等校车停在教堂门口的时候，只剩下气味、每个桩子上的一只海鸥，还有海水慢慢拍打旧码头石头的声音。
"""
MIXED = """
## 修复说明 (fix notes)
1. 把 `window.size` 的默认值从 32 改成 64，because the sensor now reports twice per second.
2. `mean()` 在没有读数时抛出 ValueError，不再返回 0；请同步更新 tests/test_window.py 和 README.md。
3. Run `make check` 之后再提交；如果 CI 里 lint 失败，先看 `.github/workflows/check.yml` 的第 18 行。
"""


def _records() -> str:
    chance = random.Random(7)
    rows = [
        {
            "id": number,
            "name": f"sensor-{number}",
            "active": number % 3 > 0,
            "value": round(chance.uniform(0, 90), 2),
            "tags": ["north", "pier"],
        }
        for number in range(60)
    ]
    return json.dumps({"rows": rows, "next": None})


def _log() -> str:
    chance = random.Random(11)
    levels = ("INFO", "WARNING", "ERROR")
    words = ("connection reset by peer", "retrying request", "cache miss for key session", "worker finished job")
    return "\n".join(
        f"2026-03-{1 + number % 28:02} 08:{chance.randrange(60):02}:{chance.randrange(60):02} {chance.choice(levels)} "
        f"pier.worker[{chance.randrange(4000)}]: {chance.choice(words)}"
        for number in range(80)
    )


SAMPLES = {"prose": PROSE, "code": CODE, "json": _records(), "log": _log(), "chinese": CHINESE, "mixed": MIXED}
EXACT = openai.o200k_base()


def test_the_estimate_is_within_twelve_percent_of_the_exact_tokenizer_on_average() -> None:
    errors = {name: abs(estimate(text) / EXACT.count(text) - 1) for name, text in SAMPLES.items()}
    assert sum(errors.values()) / len(errors) <= 0.12, errors


@pytest.mark.parametrize("name", SAMPLES)
def test_no_kind_of_text_is_off_by_more_than_a_quarter(name: str) -> None:
    assert 0.75 <= estimate(SAMPLES[name]) / EXACT.count(SAMPLES[name]) <= 1.25


def test_a_quarter_of_the_characters_would_be_far_off_on_chinese_where_the_estimate_is_not() -> None:
    exact = EXACT.count(CHINESE)
    assert len(CHINESE) / 4 < 0.6 * exact
    assert abs(estimate(CHINESE) / exact - 1) < 0.2


def test_after_a_few_calls_the_requests_of_a_denser_family_are_within_twelve_percent() -> None:
    names = list(SAMPLES)
    requests = ["".join(SAMPLES[name] * 20 for name in (*names[turn:], *names[: turn // 2])) for turn in range(6)]
    dense = [round(EXACT.count(request) * 1.6) for request in requests]
    calibration = Calibration()
    for request, reported in zip(requests[:3], dense[:3], strict=True):
        calibration = learn(calibration, "dense-9", estimate(request), reported)
    before = abs(estimate(requests[3], Calibration().factor("dense-9")) / dense[3] - 1)
    after = [
        abs(estimate(request, calibration.factor("dense-9")) / reported - 1) for request, reported in zip(requests, dense, strict=True)
    ]
    assert before > 0.12
    assert sum(after) / len(after) <= 0.12, after


def test_nothing_has_no_tokens_and_a_letter_has_one() -> None:
    assert (estimate(""), estimate("a")) == (0, 1)


def _mean_error(texts: dict[str, str]) -> float:
    errors = [abs(estimate(text) / int(EXACT.count(text)) - 1) for text in texts.values()]
    return sum(errors) / len(errors)


def _glyphs() -> dict[str, str]:
    chance = random.Random(5)
    return {
        "base64": base64.b64encode(chance.randbytes(6_000)).decode(),
        "base64 within": "\n".join(f"key {number}: {base64.b64encode(chance.randbytes(90)).decode()}" for number in range(20)),
        "hex": chance.randbytes(2_000).hex(),
        "numbers": " ".join(str(chance.randrange(10**6)) for _ in range(500)),
        "long numbers": "\n".join(str(chance.randrange(10**30)) for _ in range(60)),
        "emoji": "".join(chance.choice("😀😂👍🙏🔥🎉🚀📝📦🐛🔧🔍💡🧪🤖🌍") for _ in range(300)),
        "signs": "→ ✓ ✗ … — “quoted” • " * 100,
        "rare chinese": "".join(chr(chance.randrange(0x20000, 0x2A6DF)) for _ in range(200)),
        "hindi": "हम फ़ाइल पढ़ते हैं और फिर बदलाव करते हैं ताकि सब कुछ सही चले। सर्वर बंद हो गया था। " * 20,
        "thai": "เราจะอ่านไฟล์แล้วแก้ไขให้ถูกต้อง ปัญหาอยู่ที่ไหน เซิร์ฟเวอร์หยุดทำงาน " * 20,
        "korean": "파일을 읽고 나서 모든 것이 올바르게 작동하도록 변경합니다. 서버가 중지되어 다시 시작했습니다. " * 20,
        "russian": "Мы читаем файл, а затем меняем его так, чтобы всё работало правильно. Сервер остановился. " * 20,
    }


GLYPHS = _glyphs()


def test_a_table_of_drawn_lines_is_not_taken_for_so_many_signs() -> None:
    table = "\n".join(("─" * 60, "a name      a number", "─" * 60)) * 20
    assert 0.8 <= estimate(table) / EXACT.count(table) <= 1.25


@every_case("name", GLYPHS)
def test_scripts_signs_and_rows_of_no_words_are_not_off_by_more_than_a_third(name: str) -> None:
    assert 0.67 <= estimate(GLYPHS[name]) / EXACT.count(GLYPHS[name]) <= 1.33


def test_scripts_signs_and_rows_of_no_words_are_within_fifteen_percent_on_average() -> None:
    assert _mean_error(GLYPHS) <= 0.15


@given(st.text(max_size=2_000), st.text(max_size=2_000))
def test_the_size_of_a_concatenation_is_the_sum_of_the_sizes_except_at_the_seam(one: str, other: str) -> None:
    first, second = one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    # At the seam digits may come together or a row become long, and a row that is long counts as a whole.
    assert estimate_bytes(first + second) == pytest.approx(estimate_bytes(first) + estimate_bytes(second), rel=0.6, abs=30)


@given(st.text("abc XYZ.,;()\n", max_size=2_000), st.text("abc XYZ.,;()\n", max_size=2_000))
def test_words_have_the_same_size_together_and_apart(one: str, other: str) -> None:
    assert estimate_bytes((one + other).encode()) == pytest.approx(estimate_bytes(one.encode()) + estimate_bytes(other.encode()))


@given(st.text())
def test_no_text_has_a_negative_size(text: str) -> None:
    assert estimate(text) >= (1 if text else 0)


def test_the_sum_of_the_heaviest_bytes_does_not_overflow() -> None:
    assert estimate_bytes(b"\xf0" * 1_000_000) == pytest.approx(1_690_000 + 2_268_000, rel=0.01)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-sonnet-4-5", "claude"),
        ("anthropic/claude-opus-4", "claude"),
        ("gpt-5.5", "gpt"),
        ("openai-compatible/o3-mini", "gpt"),
        ("local/smollm2", "other"),
        ("", "other"),
    ],
)
def test_the_family_comes_from_the_name(model: str, family: str) -> None:
    assert family_of(model) == family


def test_an_unknown_model_starts_with_the_factor_of_its_family() -> None:
    empty = Calibration()
    assert [empty.factor(name) for name in ("claude-sonnet-4-5", "gpt-5.5", "local/x")] == [1.33, 1.0, 1.1]


def test_one_call_of_a_thousand_tokens_calibrates_the_factor() -> None:
    assert learn(Calibration(), "m", 1_000, 1_500).factor("m") == 1.5


def test_a_small_call_and_a_call_without_usage_do_not_calibrate() -> None:
    assert learn(learn(Calibration(), "m", 999, 5_000), "m", 5_000, 0) == Calibration()


def test_recent_calls_have_more_weight() -> None:
    calibration = Calibration()
    for reported in (1_000, 1_000, 2_000):
        calibration = learn(calibration, "m", 1_000, reported)
    learned = calibration.models["m"]
    assert (round(learned.estimated), round(learned.reported)) == (2_440, 3_440)
    assert calibration.factor("m") > 4_000 / 3_000


def test_the_factor_stays_between_a_half_and_two_and_a_half() -> None:
    assert learn(Calibration(), "m", 1_000, 9_000).factor("m") == 2.5
    assert learn(Calibration(), "m", 9_000, 1_000).factor("m") == 0.5


def test_a_calibration_survives_being_written() -> None:
    calibration = learn(Calibration(), "m", 1_000, 1_500)
    assert msgspec.json.decode(msgspec.json.encode(calibration), type=Calibration) == calibration
