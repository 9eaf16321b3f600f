"""Words of which one excludes the others: who asked for one of them did not ask for another."""

import re
from collections import defaultdict
from functools import lru_cache
from typing import Final

# One kind to a line; words joined by a slash are the same choice.
_ENGLISH = """
seconds/sec/secs minute/minutes/min hour/hours/hourly day/days/daily week/weeks/weekly month/months/monthly quarter year/years/yearly
monday tuesday wednesday thursday friday saturday sunday
january february march april june july august september october november december
today/tonight tomorrow yesterday
morning noon afternoon evening night/midnight
first/1st second/2nd third/3rd fourth fifth last
english german french spanish italian portuguese dutch polish russian chinese japanese korean arabic turkish swedish danish finnish hindi
american british
utc/gmt berlin lisbon london paris tokyo york beijing shanghai madrid rome vienna zurich local
csv json/jsonl xml yaml toml parquet avro excel/xlsx protobuf pdf html markdown
mysql/mariadb postgres/postgresql sqlite oracle mongodb/mongo redis memcached cassandra dynamodb
python rust golang java kotlin scala ruby perl php javascript typescript lua swift haskell elixir
react vue angular svelte jquery stimulus htmx
npm yarn pnpm bun
pip poetry uv conda
pytest unittest nose
aws azure gcp
kafka rabbitmq rocketmq nats sidekiq celery cron
windows linux macos/mac android ios
chrome firefox safari edge
docker podman kubernetes/k8s
tabs spaces
mit gpl lgpl apache bsd
rest graphql grpc soap
main/master develop/dev
production/prod/live staging/preview/sandbox development
squash rebase
red green blue yellow orange amber purple pink brown gold/golden silver black white grey/gray
light/bright dark
date name size price id
oldest/earliest newest/latest/recent
ascending/asc descending/desc
small/smaller/short/shorter/tiny big/bigger/large/larger/long/longer/huge
fast/faster slow/slower
public private/internal
sync/synchronous async/asynchronous
top/above bottom/below
minimum/min/least maximum/max/most
patch minor major
optional mandatory/required/compulsory
daytime/day nighttime/night
frontend/front-end backend/back-end
uppercase lowercase
tls ssl plaintext
open/reopen close/shut
show/display/reveal hide/conceal
double halve
start/launch/resume stop/halt/abort
encrypt/encrypted decrypt/unencrypted
compress decompress/uncompressed
lock unlock
attach detach
connect disconnect
subscribe unsubscribe
upload download
import/importer export/exporter
push pull
expand collapse
automatic/automatically/auto manual/manually
online offline
horizontal/horizontally vertical/vertically
eager/eagerly lazy/lazily
full partial incremental
permanent/permanently temporary/temporarily
inbound/incoming outbound/outgoing
kb mb gb tb
cent euro dollar
left-side right-side
up-ward down-ward
early-time late-time
"""
_CHINESE = """
秒 分钟 小时 天/每日/每天 周/星期/每周 月/每月 季度 年
周一/星期一 周二/星期二 周三/星期三 周四/星期四 周五/星期五 周六/星期六 周日/星期日/周天
今天/今晚/当天 明天/明晚 昨天
上午 中午 下午 晚上/夜间/夜里
中文/汉语 英文/英语 日文/日语 法文/法语 德文/德语 韩文/韩语 俄文/俄语
北京时间/东八区 东京时间 本地时间 纽约时间 伦敦时间 UTC
正序/升序 倒序/降序
前端 后端/服务端
生产/线上/正式/现网 测试/预发/开发/本地
同步 异步
小版本 大版本 补丁
安卓/Android 苹果/iOS/ios 鸿蒙
高端机 中端机/中端 低端机/低端
红色/红的 绿色/绿的 蓝色/蓝的 黄色/黄的 黑色/黑的 白色/白的 灰色/灰的 金色/金的 银色/银的 紫色/紫的 橙色/橙的 粉色/粉的
深色/暗色 浅色/亮色
按日期/按时间 按名称/按名字 按价格 按大小 按编号
最新 最早/最旧
左侧/左边 右侧/右边
可选 必填/必选
前三位 后四位 前四位 后三位
上限/最多 下限/至少
加密 解密
压缩 解压
上传 下载
导入 导出
显示/展示 隐藏
上面/上方 下面/下方
自动 手动/人工
翻倍/加倍 减半
启动 停止/停掉
锁定 解锁
连接 断开
展开 折叠/收起
横向/水平 纵向/垂直/竖向
全量 增量
永久 临时
在线 离线
订阅 退订
周末 工作日
向上 向下
"""


def _choices(text: str) -> dict[str, list[tuple[int, int]]]:
    """Of each word the kinds it belongs to and which choice it is there."""
    found: dict[str, list[tuple[int, int]]] = {}
    for kind, line in enumerate(filter(None, text.split("\n"))):
        for choice, words in enumerate(line.split()):
            for word in words.split("/"):
                found.setdefault(word.lower(), []).append((kind, choice))
    return found


def _with_forms(table: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    """The table with the forms of its words: `hides`, `opened`, `hiding`."""
    for word in tuple(table):
        for form in (f"{word}s", f"{word}ed", f"{word}ing", f"{word}d", f"{word[:-1]}ing", f"{word}{word[-1]}ed", f"{word}{word[-1]}ing"):
            table.setdefault(form, table[word])
    return table


_LATIN: Final = _with_forms(_choices(_ENGLISH))
_SIGNS: Final = _choices(_CHINESE)
_WORD = re.compile(r"(?<![\d.] )[a-z][a-z0-9-]+|(?<=\d )(?!second\b)[a-z][a-z-]+|\b[123](?:st|nd|rd)\b")
# Only here does such a word say where, which way or when.
_PLACED = re.compile(
    r"\b(?:(?:on|to|at) the (?P<left>left|right)\b(?! of)|(?P<side>left|right)(?:-hand)? (?:side|corner|edge|half|column)\b|"
    r"(?:round|scal|roll|shift|scroll)(?:e|ed|ing)? (?P<way>up|down)\b|"
    r"(?P<early>before (?:\w+ ){0,3}(?:begin|start)|at the (?:start|beginning)\b|up[- ]front\b)|"
    r"(?P<late>when (?:\w+ ){0,3}(?:done|finished|complete)\b|(?:at|in) the end\b|afterwards\b))"
)
_PLACED_CHINESE = re.compile(
    r"(?P<early>(?:开工|开始|动手|动工)(?:之前|以前|前))|(?P<late>[做干搞弄]完|(?:完成|结束|完工)(?:之后|以后|后))"
)
_PLACES: Final = {"left": "{}-side", "side": "{}-side", "way": "{}-ward", "early": "early-time", "late": "late-time"}
# The longest first: 北京时间 is one word.
_SIGN = re.compile("|".join(re.escape(word) for word in sorted(_SIGNS, key=len, reverse=True)))


@lru_cache(maxsize=2_000)
def _chosen(text: str) -> dict[tuple[bool, int], frozenset[int]]:
    """Of each kind the choices that a text names."""
    lower = text.lower()
    latin_only = lower.isascii()
    placed = [
        _PLACES[found.lastgroup].format(found[found.lastgroup])
        for pattern in ((_PLACED,) if latin_only else (_PLACED, _PLACED_CHINESE))
        for found in pattern.finditer(lower)
        if found.lastgroup is not None
    ]
    named: defaultdict[tuple[bool, int], set[int]] = defaultdict(set)
    for latin, words, table in (
        (True, [*_WORD.findall(lower), *placed], _LATIN),
        (False, () if latin_only else _SIGN.findall(lower), _SIGNS),
    ):
        for word in words:
            for kind, choice in table.get(word, ()):
                named[latin, kind].add(choice)
    return {kind: frozenset(choices) for kind, choices in named.items()}


def choices_of(text: str) -> dict[tuple[bool, int], frozenset[int]]:
    """Of each kind of choice that a text names those that it names."""
    return _chosen(text)


def without_choices(text: str) -> str:
    """A text without the words that are one of several choices."""
    return _SIGN.sub(" ", _WORD.sub(lambda found: " " if found[0] in _LATIN else found[0], text.lower()))


def chooses_otherwise(claim: str, said: str) -> bool:
    """Whether a claim names one of several choices where what was said names only another."""
    chosen = _chosen(claim)
    if not chosen:
        return False
    before = _chosen(said)
    return any(choices - before[kind] for kind, choices in chosen.items() if kind in before)
