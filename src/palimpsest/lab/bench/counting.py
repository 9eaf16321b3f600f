"""Error of the calibrated token estimate against an exact tokenizer, on texts of five kinds."""

import pydoc_data.topics
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from statistics import mean

import msgspec

from palimpsest.core.tokens.estimate import Calibration, estimate, learn
from palimpsest.lab.bench.bars import Bar, bar, peer_value
from palimpsest.lab.bench.peers import Langchain
from palimpsest.lab.bench.workspace import BenchWorkspace, import_optional

_MODULES = ("argparse", "dataclasses", "difflib", "heapq", "shutil", "statistics", "tarfile", "textwrap", "threading", "typing")
_WORDS = ("order", "invoice", "ledger", "router", "session", "worker", "report", "schema", "cache", "window", "token", "batch")
_LEVELS = ("INFO", "DEBUG", "WARNING", "ERROR")
_CHINESE = (
    "上下文引擎把发生过的一切都写进日志,模型看到的只是日志的一个投影。",
    "如果压缩之后丢失了用户说过的话,后面的每一步都可能走错方向。",
    "请先阅读相关文件,再修改代码,最后运行全部测试并报告退出码。",
    "昨天下午三点开始,订单服务的响应时间从两百毫秒上升到四秒左右。",
    "这个函数在列表为空时会抛出异常,因此需要补充一个能够重现问题的测试。",
    "我们决定暂时保留旧的接口名称,等下一个版本发布之后再把它删除。",
    "数据库连接没有及时关闭,导致连接池在高峰时段被耗尽。",
    "注意:不要改动迁移目录里的任何文件,也不要提交本地的配置。",
)


@cache
def _prose() -> str:
    """Return the Python language reference."""
    topics: dict[str, str] = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


@cache
def _code() -> str:
    """Return some modules of the Python standard library."""
    folder = Path(sysconfig.get_path("stdlib"))
    return "\n".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES)


def _records(random: Random) -> str:
    """Return a JSON response of an API."""
    rows = [
        {
            "id": random.randrange(10**9),
            "kind": random.choice(_WORDS),
            "created_at": f"2031-{random.randrange(1, 13):02d}-{random.randrange(1, 29):02d}T09:{random.randrange(60):02d}:00Z",
            "amount": random.randrange(10**6) / 100,
            "tags": random.sample(_WORDS, 3),
            "owner": {"name": f"{random.choice(_WORDS)}-{random.randrange(100)}", "active": random.random() < 0.5, "note": None},
        }
        for _ in range(20)
    ]
    text = msgspec.json.encode(rows)
    return (msgspec.json.format(text, indent=2) if random.random() < 0.5 else text).decode()


def _logs(random: Random) -> str:
    """Return log lines of a service."""
    return "\n".join(
        f"2031-04-{random.randrange(1, 29):02d} 09:{random.randrange(60):02d}:{random.randrange(60):02d},{random.randrange(1000):03d} "
        f"{random.choice(_LEVELS)} [{random.choice(_WORDS)}.{random.choice(_WORDS)}] {random.choice(_WORDS)} {random.randrange(10**6)} "
        f"from 10.0.{random.randrange(256)}.{random.randrange(256)} took {random.randrange(4000)} ms"
        for _ in range(50)
    )


def _chinese(random: Random) -> str:
    """Return Chinese sentences of a user or a model."""
    return "".join(random.choice(_CHINESE) for _ in range(50))


def _excerpt(text: str, random: Random) -> str:
    start = random.randrange(len(text) - 4_000)
    return text[start : start + 4_000]


KINDS: dict[str, Callable[[Random], str]] = {
    "prose": lambda random: _excerpt(_prose(), random),
    "code": lambda random: _excerpt(_code(), random),
    "json": _records,
    "logs": _logs,
    "chinese": _chinese,
}
_MODEL = "gpt-5.5"
_CALLS = 60


def measure_counting(workspace: BenchWorkspace, wanted: frozenset[str]) -> Iterator[Bar]:
    """Measure `tokens_error`; without a value if the exact tokenizer is not installed."""
    workspace.announce("counting tokens")
    library = import_optional("rs_bpe.bpe")
    if library is None:
        yield bar("tokens_error", None)
        return
    exact: Callable[[str], int] = library.openai.o200k_base().count
    calls = list(_calls())
    errors: dict[str, list[float]] = {}
    calibration = Calibration()
    for kind, text in calls:
        raw, counted = estimate(text), exact(text)
        guess = raw * calibration.factor(_MODEL)
        errors.setdefault(kind, []).append(abs(guess - counted) / counted * 100)
        calibration = learn(calibration, _MODEL, raw, counted)
    langchain = Langchain.find(workspace)
    peer = langchain and mean(abs(langchain.count_text(text) - exact(text)) / exact(text) * 100 for _, text in calls)
    all_errors = [error for kind_errors in errors.values() for error in kind_errors]
    by_kind = {kind: mean(kind_errors) for kind, kind_errors in errors.items()}
    yield bar("tokens_error", mean(all_errors), peer_value(Langchain.NAME, peer), **by_kind)


def _calls() -> Iterator[tuple[str, str]]:
    """Yield 60 calls with their main kind of text; each also holds two texts of other kinds."""
    random = Random(5)  # noqa: S311 - synthetic calls hold no secret
    for number in range(_CALLS):
        main = list(KINDS)[number % len(KINDS)]
        others = [kind for kind in KINDS if kind != main]
        parts = [KINDS[main](random) for _ in range(6)] + [KINDS[kind](random) for kind in random.sample(others, 2)]
        yield main, "\n".join(parts)
