"""Finds commands to the model that came with a tool's result and are repeated where they would look like somebody's word."""

import re
from collections.abc import Iterable

_COMMANDS = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|skip)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|all|any|your|these|those|the)\b"
    r"|\byou (?:must|should|shall|need to|have to|are (?:now|required|to)|will now|may now)\b"
    r"|\b(?:do not|don't|never|without) (?:tell|telling|inform|informing|mention|mentioning|ask|asking|reveal|show|warn|notify)\b"
    r"|\b(?:system|developer) (?:prompt|message|instruction|override)s?\b"
    r"|\b(?:new|real|actual|updated|hidden|urgent) (?:instruction|task|order|directive|objective)s?\b"
    r"|\b(?:please |now |immediately |always |then )?(?:run|execute|delete|remove|send|upload|post|install|download|email|fetch|visit|copy"
    r"|reply|respond|print|push|commit|disable|grant|approve|leak|transfer|forward) "
    r"|(?:忽略|无视|忘记|忘掉|不要理会|跳过)[^。\n]{0,12}(?:指令|指示|规则|提示|要求|内容|限制|说明)"
    r"|(?:你|您|助手|模型)(?:必须|应该|应当|需要|现在是|务必|不得|不能|只能)"
    r"|(?:不要|不得|切勿|禁止|别|无需)(?:告诉|告知|提及|透露|询问|通知|提醒)"
    r"|请?(?:立即|马上|立刻|务必|直接|现在就)(?:运行|执行|删除|发送|上传|安装|下载|打开|访问|回复|输出|提交|关闭|批准)"
    r"|系统(?:提示|消息|指令|命令)|新的?(?:指令|任务|命令)",
    re.IGNORECASE,
)
# No honest account of work repeats these by chance: of them fewer words in a row are a quotation.
_TAKES_OVER = re.compile(
    r"\b(?:ignore|disregard|forget)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|all|any|your|these|those)\b"
    r"|\b(?:do not|don't|never|without) (?:tell|telling|inform|informing|mention|mentioning|reveal|notify)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W_]+", re.UNICODE)
# So many words in a row are a quotation; a sign of Chinese counts as one.
_RUN = 6
_SHORT_RUN = 4


def quoted_commands(text: str, results: Iterable[str], said: Iterable[str]) -> tuple[str, ...]:
    """The lines that repeat, word for word, a command to the model which stands in a result and which the user never gave."""
    suspects = {line: _runs(line) for line in text.split("\n") if _COMMANDS.search(line)}
    suspects = {line: runs for line, runs in suspects.items() if runs}
    if not suspects:
        return ()
    shown, own = [_words(each) for each in results], [_words(each) for each in said]
    return tuple(
        line
        for line, runs in suspects.items()
        if any(any(run in each for each in shown) and not any(run in each for each in own) for run in runs)
    )


def _runs(line: str) -> tuple[str, ...]:
    """Every few words in a row that overlap with a command in the line."""
    return (*_overlapping(line, _COMMANDS, _RUN), *_overlapping(line, _TAKES_OVER, _SHORT_RUN))


def _overlapping(line: str, commands: re.Pattern[str], length: int) -> tuple[str, ...]:
    words = list(_WORD.finditer(line))
    found = [match.span() for match in commands.finditer(line)]
    runs = []
    for start in range(max(0, len(words) - length + 1)):
        run = words[start : start + length]
        if any(run[0].start() < end and begin < run[-1].end() for begin, end in found):
            runs.append(f" {' '.join(word[0].lower() for word in run)} ")
    return tuple(runs)


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text)).lower()} "
