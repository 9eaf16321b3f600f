"""Words for the same deed and words for the opposite, so that nobody is said to have wanted another thing done than was said."""

import re
from functools import lru_cache
from typing import Final

_ENDING_WORDS = "ations ation ating ators ator ated ates ate ings ing ions ion ments ment ers er ies ied es ed s ly e y"
_ENDINGS = tuple(_ENDING_WORDS.split())


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without its ending, as far as comparing needs it."""
    word = word.removesuffix("'s").removesuffix("’s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls" else word


_DEEDS: Final = (
    (
        "remove",
        "remove delete drop cancel erase eliminate purge wipe scrap discard uninstall destroy abandon nuke prune trash",
        "删 移除 去掉 去除 清除 清空 卸载 丢弃 干掉 取消 砍掉 放弃 扔 拿掉 不管了",
    ),
    (
        "add",
        "add introduce create implement insert append install",
        "添 增 新建 创建 加上 加入 加一 引入 安装 装新 装依 装包 (?<!组)装[新一个]",
    ),
    (
        "change",
        "change modify edit alter adjust touch update rewrite rewrote rewritten refactor convert replace rename switch swap rework tweak",
        "改 换 调整 更新 重构 迁移 重写 动(?=$|\\W) (?<=不要)动 (?<=别)动 (?<=许)动 碰",
    ),
    ("fix", "fix repair resolve solve correct", "修复 解决 修正 修一 修好 修掉 (?<!维)修(?![改正复])"),
    ("disable", "disable deactivate bypass suppress", "禁用 关闭 停用 绕过 关掉"),
    ("enable", "enable activate", "启用 开启 打开 激活"),
    ("publish", "push publish deploy release ship rollout", "推送 发布 部署 上线 发版 上生产"),
    ("merge", "merge", "合并"),
    ("revert", "revert undo rollback", "回滚 撤销 还原 回退"),
    ("raise", "raise increase bump extend", "提高 增大 延长 调高 加大"),
    ("lower", "lower reduce decrease shrink", "降低 减少 缩短 调低"),
    ("skip", "skip omit ignore", "跳过 省略 忽略 不跑 略过"),
    ("check", "verify check validate", "验证 检查 校验"),
    ("break", "break broke broken", "破坏"),
)
DEED_OF: Final = {stem(word): deed for deed, words, _ in _DEEDS for word in words.split()}
CHINESE_DEEDS: Final = tuple((deed, re.compile("|".join(words.split()))) for deed, _, words in _DEEDS)
ANY_CHINESE_DEED: Final = re.compile("|".join(f"(?:{word})[除了掉]?" for _, _, words in _DEEDS for word in words.split()))

# Deeds that a wish for the thing itself implies, so that they need not have been said.
IMPLIED: Final = frozenset({"add", "check", "enable", "change", "raise", "lower"})
OPPOSITE: Final = {
    "add": frozenset({"remove", "disable"}),
    "enable": frozenset({"disable", "remove", "skip"}),
    "raise": frozenset({"lower"}),
    "lower": frozenset({"raise"}),
    "check": frozenset({"skip", "disable"}),
    "change": frozenset({"remove", "revert"}),
}
_KEEPS = re.compile(
    r"\b(?:keep|kept|keeping|retain\w*|preserv\w*|maintain\w*|stay\w*|remain\w*)\b|保留|保持|留着|维持|"
    r"沿用",
    re.IGNORECASE,
)
_OPPOSED = (
    ("oldest earliest", "newest latest recent"),
    ("ascending asc", "descending desc reverse"),
    ("small smaller short shorter tiny", "big bigger large larger long longer huge"),
    ("light bright", "dark"),
    ("fast faster", "slow slower"),
    ("public", "private internal"),
    ("sync synchronous", "async asynchronous"),
    ("top above", "bottom below under"),
    ("left", "right"),
    ("minimum min least", "maximum max most"),
    ("minor", "major"),
    ("小版本", "大版本"),
    ("optional", "mandatory required"),
    ("production prod live", "staging development local"),
    ("正序 升序", "倒序 降序"),
    ("前端", "后端"),
    ("生产 线上 正式", "测试 预发 开发 本地"),
    ("同步", "异步"),
)
_PAIRS = tuple(
    (re.compile(_one), re.compile(_other))
    for first, second in _OPPOSED
    for side, against in ((first, second), (second, first))
    for _one, _other in [
        tuple("|".join(word if word[0] > "z" else rf"\b{word}\b" for word in words.split()) for words in (side, against)),
    ]
)


def keeps(text: str) -> bool:
    """Whether a clause wants something to stay."""
    return _KEEPS.search(text) is not None


def says_the_opposite(claim: str, said: str) -> bool:
    """Whether one text has a word where the other has its opposite."""
    claim, said = claim.lower(), said.lower()
    return any(one.search(claim) and not one.search(said) and other.search(said) and not other.search(claim) for one, other in _PAIRS)
