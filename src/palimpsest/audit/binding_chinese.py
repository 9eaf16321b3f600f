"""Whether a Chinese sentence demands, forbids or decides, by how such sentences are built."""

import re

from palimpsest.audit.binding_english import Binding

_FORBIDS = re.compile(
    r"不要(?!紧)|不准|不许|不得(?!不|已|了)|不可(?!能|避免|思议|否认|或缺)|不应|不该|不宜|不允许|不接受|不同意|不支持(?=.*了)|勿|莫要|甭|休得|"
    r"(?<![分特区级类识个判性差告辨鉴派])别(?![的人处名扭墅致称])|禁(?!区)|严禁|杜绝|避免|防止|绝不|决不|千万不|切忌|拒绝|停止|停下|住手|"
    r"无需|无须|不必|不用(?!户|于|说)|用不着|没必要|免得|以免|谁(?:也|都)不|任何.{0,12}(?:都不|也不|均不)|"
    r"(?<!为什么)(?<!怎么)(?<!我)不能(?!登|打开|正常|访问|连)|不想(?:要|让|看)|不希望|不喜欢|不再|不碰|不动|不改|不改动|不加|不引入|不考虑|暂不|[先就都也]不(?!是|会|知|错|行|对|一样)|不留|毋|反对|不使用|不修改|"
    r"除外|以外的?.{0,6}不|零(?:容忍|警告|依赖)|除非.{0,20}否则|到此为止|红线|一概不"
)
_DECIDES = re.compile(
    r"决定|就定|就用|就按|就这[样么]|就选|就改|就[先走]|按照?.{1,20}(?:来|做|执行|走|方案)|改成|改为|改用|改回|换成|换用|换回|选[择用定第]|采用|采纳|沿用|"
    r"定[下为了在]|敲定|拍板|同意|批准|通过了|认可|赞成|可以[的了]?(?=[，,。!！~]|$)|没问题|没意见|好的|^行[，,。]|^[好嗯对是](?=[，,。]|$)|"
    r"而不是|而非|代替|取代|替换成|以后|今后|往后|从现在[起开]|从今|默认|倾向|偏好|更喜欢|宁可|宁愿|还是用|还是[按走]|那就|统一[用为成]|"
    r"方案[一二三四五甲乙丙A-Da-d\d]|第[一二三四\d]+[个种]|执行方案|维持|回到|切[换回到]|拉取|准了|授权|放行|允许|听你的|你来定"
)
_DEMANDS = re.compile(
    r"必须|必需|必要|务必|务请|须(?!知)|一定[要得]|需要?|要求|应[该当]|理应|[就还都总可]得(?=[\u4e00-\u9fff])|请(?!问)|麻烦|劳烦|拜托|烦请|希望|期望|"
    r"[想我](?:要|想)|只(?=[能许准允需要用在有改做动看读写修查加删测跑提看留支])|仅[限能用在]|始终|总是|一直要|每次|每个.{0,10}都|所有.{0,12}都|一律|一概|全部|确保|保证|保持|保留|"
    r"尽量|尽可能|最好|优先|记得|记住|牢记|注意|切记|[至最][少多]|不[超少多]过?于?|以内|之内|上限|下限|严格|"
    r"(?<![不需只想必主重摘概纲紧首简索次若])要(?![么是不素点件塞害])|[帮给带替让为](?:我|我们|咱|他|用户|忙)|先(?!前|生|进|后)|再(?!见|次出现|说)|继续|"
    r"顺便|顺手|尽快|马上|立刻|赶紧|非.{1,10}不可|一下(?!子)|"
    r"锁[死定]|固定|冻结|写死|(?<![使作应引调费有没利信通常占专录复适滥启停])用(?![户于到过来的途法例])|为准|照着|照(?![片常样])|由(?![于此])|"
    r"只管|归.{1,6}管|设[成为置]|留[着下给]|走.{0,8}(?:方案|流程|路线)|宁|凡是|控制在|想办法|能.{1,6}就|能[不否]能?帮|可否|能否"
)
# Verbs that stand first when somebody is told what to do.
_FIRST = re.compile(
    r"^(?:(?:然后|接着|首先|其次|最后|同时|另外|还有|此外|并且?|那么?|好的?|嗯|行|现在|直接|详细|重新|仔细|马上|立刻|认真|全部|都|你|您|你们|咱们|我们|统一|"
    r"[一二三四五六七八九十\d]+[、.)）])[，,、 ]*)*"
    r"(?:把|将|给|让|去|改|删|加|增|添|修|写|用|使用|运行|执行|检查|检验|验证|调查|查|测|提交|实现|重构|更新|创建|新建|建|生成|替换|移|合并|部署|优化|"
    r"整理|总结|分析|解释|说明|翻译|列|看|试|跑|做|换|停|关|开|打开|安装|卸载|装|升级|降级|回滚|撤销|恢复|保存|存|推|发布|发|补|完善|调整|调|设|配置|"
    r"记录|输出|返回|打印|展示|显示|隐藏|限制|拆|抽|封装|提取|复用|参考|对齐|对比|比较|确认|找|定位|排查|解决|处理|支持|兼容|清理|清空|清|准备|制定|"
    r"设计|画|读|阅读|学习|搜|启动|重启|拉|克隆|忽略|跳过|遵[守循]|遵照|严格|尊重|多|少|快|以)"
)
_ASKS = re.compile(
    r"[?？]$|[吗呢嘛么][?？。]?$|(?:什么|怎么|怎样|如何|哪[个些里种儿]|谁会|为何|是不是|有没有|要不要|能不能|可不可以|是否|多少|几个)"
)
_ENDS_ASKING = re.compile(r"[?？]$|[吗呢嘛么][?？。]?$")
_IS_DONE = re.compile(r"^[^把将给]*了[。!！~]?$")
_POLITE = re.compile(r"请(?!问)|[帮给带替](?:我|我们|忙)|麻烦|能[不否]?能?(?:帮|把|给)|可以(?:帮|把|给)|可否|劳烦")


def chinese(sentence: str) -> Binding | None:
    """What a sentence does to whoever works; a question does nothing unless it is a polite way to demand."""
    first = _FIRST.match(sentence) is not None
    polite = _POLITE.search(sentence) is not None
    if _ENDS_ASKING.search(sentence) is not None and not polite:
        return None
    if _FORBIDS.search(sentence) is not None:
        return "forbidden"
    if _ASKS.search(sentence) is not None and not first and not polite:
        return None
    if _DECIDES.search(sentence) is not None:
        return "decided"
    # What is done is told with `了` at the end; who wants it done says how, or says it with `把` or `吧`.
    if first and _IS_DONE.search(sentence) is not None and _DEMANDS.search(sentence) is None:
        return None
    return "demanded" if first or polite or _DEMANDS.search(sentence) is not None else None
