"""Words for people and bodies that may want, allow or forbid something, in English and Chinese."""

from typing import Final

_ENGLISH = """
landlord association tenant stakeholder sponsor founder investor shareholder chairman chairwoman president principal supervisor
director executive boss chief superior mentor coach teacher professor pupil student patient doctor nurse lawyer attorney notary
judge auditor accountant bookkeeper treasurer controller-in-chief colleague coworker co-worker teammate partner counterpart vendor
supplier contractor subcontractor consultant adviser advisor agency department division committee council authority ministry
commission administration leadership management headquarters union assembly guild crew staff personnel folks people person guy
lady gentleman somebody someone everybody everyone nobody anyone anybody colleagues lawyers regulators regulator ombudsman
inspector examiner reviewer approver requester requestor petitioner commissioner buyer purchaser subscriber donor beneficiary
translator editor author publisher curator librarian architect designer researcher scientist analyst marketer salesperson
salespeople recruiter operator maintainer contributor committer moderator organiser organizer host-in-charge coordinator
representative delegate deputy secretary assistant intern superintendent officer mayor minister councillor borrower librarian
neighbour resident citizen parent superintendent foreman captain pilot dispatcher farmer chef cook owner human maintainers
developers engineers
"""
_CHINESE = """
农业局 合作社 居委会 街道 社区 协会 学会 房东 租户 投资人 投资方 股东 董事长 董事会 总经理 总监 主管 主任
经理 组长 队长 校长 院长 处长 科长 部长 局长 店长 厂长 站长 馆长 园长 老板 领导 上司 上级 高层 管理层 总部
分公司 业主 业务方 业务部门 产品方 项目方 需求方 委托方 甲方 乙方 对方 合作方 供应商 厂商 渠道商 渠道方 版权方
平台方 投放方 物业 学校 医院 银行 教务处 信息中心 办公室 法务 财务 行政 人事 采购 审计 合规 监管 运维 运营
策划 设计师 美术 测试组 支付组 安全部门 安全组 数据组 架构组 前端组 后端组 市场部 销售 客服 律师 会计 顾问
专家 老师 同事 同学 负责人 责任人 值班 评审 评委 验收方 出题人
"""
PEOPLE: Final = "|".join(f"{word}s?" for word in _ENGLISH.split())
CHINESE_PEOPLE: Final = "|".join(_CHINESE.split())
