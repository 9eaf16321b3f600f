"""Words for the same deed and words for the opposite, so that nobody is said to have wanted another thing done than was said."""

import re
from typing import Final

from palimpsest.audit.words import stem

_DEEDS: Final = (
    (
        "remove",
        (
            "remove delete drop cancel erase eliminate purge wipe scrap discard uninstall destroy abandon nuke prune trash removal "
            "deletion ditch axe gone"
        ),
        "删 移除 去掉 去除 清除 清空 卸载 丢弃 干掉 取消 砍掉 放弃 扔 拿掉 下线 撤掉 弃用",
    ),
    (
        "add",
        "add introduce create implement insert append install",
        "添 增 新建 创建 加上 加入 加一 引入 安装 装新 装依 装包 (?<!组)装[新一个]",
    ),
    (
        "change",
        (
            "change modify edit alter alteration modification adjust touch update rewrite rewrote rewritten refactor convert "
            "replace rename switch swap rework tweak"
        ),
        "修改 更改 改动 变更 变动 改 变(?=$|\\W|了) 换 调整 更新 重构 重写 动(?=$|\\W) (?<=不要)动 (?<=别)动 (?<=许)动 碰",
    ),
    ("fix", "fix repair resolve solve correct", "修复 解决 修正 修一 修好 修掉 (?<!维)修(?![改正复])"),
    ("disable", "disable deactivate bypass suppress", "禁用 关闭 停用 绕过 关掉"),
    ("enable", "enable activate", "启用 开启 打开 激活"),
    ("publish", "push publish deploy release ship rollout", "推送 上(?=$|[，。；]) 推(?=$|\\W|到|上) 发布 部署 上线 发版 上生产"),
    ("merge", "merge", "合并(?!请求|冲突) 合到 合入 合进 并入 并到"),
    ("revert", "revert undo rollback", "回滚 撤销 还原 回退"),
    ("raise", "raise increase bump extend", "提高 增大 延长 调高 加大"),
    ("lower", "lower reduce decrease shrink shorten", "降低 减少 缩短 调低"),
    ("move", "move relocate migrate port transfer", "搬 迁到 挪 迁移 移到 移动到"),
    ("skip", "skip omit ignore exclude bypass", "跳过 省略 忽略 不跑 略过"),
    ("check", "verify check validate", "验证 检查 校验"),
    (
        "postpone",
        "postpone defer delay shelve later",
        "推迟 暂缓 延后 延期 搁置 放一放 等等 等一等 放着 放放 缓一缓 缓缓 顺延 再说 再议 再谈 再定 另议 往后放 下期",
    ),
    ("include", "include contain", "包含"),
    ("break", "break broke broken", "破坏"),
)
DEED_OF: Final = {stem(word): deed for deed, words, _ in _DEEDS for word in words.split()}
CHINESE_DEEDS: Final = tuple((deed, re.compile("|".join(words.split()))) for deed, _, words in _DEEDS)
ANY_CHINESE_DEED: Final = re.compile("|".join(f"(?:{word})[除了掉]?" for _, _, words in _DEEDS for word in words.split()))

# Deeds that a wish for the thing itself implies, so that they need not have been said.
IMPLIED: Final = frozenset({"add", "check", "enable", "change", "raise", "lower", "postpone", "include"})
OPPOSITE: Final = {
    "add": frozenset({"remove", "disable"}),
    "enable": frozenset({"disable", "remove", "skip"}),
    "raise": frozenset({"lower"}),
    "lower": frozenset({"raise"}),
    "check": frozenset({"skip", "disable"}),
    "change": frozenset({"remove", "revert"}),
    "postpone": frozenset({"publish"}),
    "include": frozenset({"skip"}),
}
_PAIRS = (("add", "remove"), ("enable", "disable"), ("raise", "lower"), ("include", "skip"))
REVERSED: Final = {one: frozenset((other,)) for pair in _PAIRS for one, other in (pair, pair[::-1])}
"""Of each deed that one which undoes it: who wants one does not want the other."""
_KEEPS = re.compile(
    r"\b(?:keep|keeps|kept|keeping|retain\w*|preserv\w*|maintain(?:s|ed|ing)?|stay\w*|remain\w*|surviv\w*|untouched|unchanged|"
    r"unaltered|intact|"
    r"as[- ]is|"
    r"as it is|as they are|off[- ]limits|hands[- ]off|stick(?:s|ing)? (?:to|with)|stuck (?:to|with)|leave \S+ (?:alone|be))\b|"
    r"保留|保持|留着|暂留|先留|留在|维持|沿用|不变|原样|照旧|禁区|禁改|继续用|接着用|只能?读|仅读|仅可读|\bread[- ]only\b",
    re.IGNORECASE,
)
STAYING: Final = frozenset({"change", "remove", "fix", "move", "revert", "break", "disable"})
"""What is not to be done to what is to stay as it is."""
ENDING: Final = frozenset({"remove", "skip", "disable", "revert", "postpone"})
"""After these a thing is not there, or does not happen."""


def keeps(text: str) -> bool:
    """Whether a clause wants something to stay."""
    return _KEEPS.search(text) is not None
