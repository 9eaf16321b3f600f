"""Chinese words of software work that mean about the same; the first of a line stands for all of it."""

import re
from typing import Final

_GROUPS = """
排查 查清 弄清 查明 搞清 查查 查一下 查下 定位 调查 看看 排除故障 找出 查找 查原因 弄明白 检查一下 摸清
原因 缘由 起因 源头 根因 为什么 为何 怎么回事
卡顿 卡 慢 缓慢 迟缓 太慢 很慢 耗时长 延迟高
快速 快 迅速
崩溃 闪退 挂掉 崩掉 宕机 死机
黑屏 屏幕变黑
报错 出错 错误 异常
加载 载入 读入
刷新 刷一次 一刷 刷
排序 排列 排好
打开 开启界面
界面 页面 画面 面板 页
首页 主页 起始页
图标 icon
图片 图像 照片
数据库 库表
线上 生产 正式环境 现网
测试机 测试环境 测试服
体积 大小 尺寸
格式 形式
存档 存盘 归档
目录 文件夹
字段 列名
注释 备注
提交说明 提交信息 提交记录 commit信息
合并 合入 合到 并入 合进 合
提交 commit
上线 发布 发版 发上去 上生产 投产
版本 版
这个版本 本版本 当前版本 这一版 这版 本版
本周 这周 这个星期 本星期 这礼拜
本月 这个月
暂时 暂且
以后 将来 日后 后续 往后 今后
之前 以前 此前
立刻 立即 马上 即刻 当场
每次 每回 逐次
间隔 周期
重试 重连次数 再试
断线重连 重连
超时 超出时间
上限 最多 封顶 至多 不超过 别超过 不得超过 不能超过 不要超过 以内 之内 控制在 不多于 压在
存 存储 保存 存放 存入 存成
至少 最少 起码 不低于 不少于
小时 钟头
手机号 手机号码 电话号码 电话
身份证号 身份证
打码 脱敏 掩码 遮盖 打马赛克
加密 密文
明文 原文
写入 写 记录 记下
入库 落库 存库 写库
好友列表 好友
名字 名称 姓名 昵称
同步 跟着变
更新 刷成最新
替换 换成 换为 替代
屏蔽词 敏感词
吞掉 丢掉 丢弃 消失 不见
整条 整个消息 一整条
省 节省 节约
拆 拆分 拆成 分拆 拆开
进程 服务进程
协议 许可 许可证 licence license
第三方 外部
依赖 依赖包 三方库
对象池 池
排行榜 榜单 榜
实时 即时
抽卡 扭蛋
概率 几率
渠道 渠道方 渠道商
审核 过审 审
引导 新手引导
安卓 Android
苹果 iOS ios
中端机 中端
低端机 低端
帧率 帧 fps FPS
北京时间 东八区
时间 时刻
截止 期限 最后期限 之前交 交付日期
导出 输出
导入 录入
报表 报告
对账 核对账目
运单 快递单
派单 派工 分单
轨迹 路线
推送 下发
批量 每批 一批 批次
插件 扩展
打印 出纸
覆盖率 覆盖
单元测试 单测
测试 用例
通过 跑通
没人用 停用 没人使用 无人使用 不用了 废弃 早就没用 弃置
只读 只能读 仅可读 仅读
维护 管 负责 管理 归
因为 由于 之所以
成本 费用 开销 代价
最优 最佳 最优解
结果 结论
不现实 不切实际 行不通
头疼 头痛 烦
喜欢 偏好 更喜欢 倾向 偏向 青睐
写法 风格 方式 做法
中文 汉语
英文 英语
样式 外观
颜色 色彩 配色
弹窗 弹框 对话框 弹
提示 提醒
登录 登陆 登入
注册 开户
密码 口令
密钥 秘钥
令牌 token
邮箱 邮件地址 email
邮件 信件
短信 消息短信
备份 副本
队列 消息队列
并发 同时
加锁 上锁 锁
重复 重号 两次
司机 驾驶员
仓库 仓储
搜索 检索 查询
过滤 筛选
下载 拉取
上传 传上去
文档 说明文档 手册
依据 根据
移动端 手机端 app APP
前端 页面端
后端 服务端 服务器端
老 旧 陈旧 遗留 早期
新 新的 新增的
所有 全部 全都 一切 统统 全量
分档 分级 档位
配置 设置 设定
脚本 脚本文件
账号 帐号 账户 帐户
支付 付款 缴费 付费
退款 退钱
优惠券 折扣券 代金券
库存 存货
订单 单子
商品 货品
价格 价钱 售价
权限 访问权
告知 说一声 打招呼 通知 知会 告诉 报备 通报
询问 问 打听 问过 问到 问了 提问 征求
自行 自己 自主 看着办 自己看着办 自行决定 自己定
随便 随意 任意
足够 够 就够 够用 就行 即可 就可以 足矣
国际件 海外件
机器 主机 服务器
合同
合适
合理
组合
集合
符合
整合
银行卡
信用卡
版权
存在
访问
审计
审批
顾问
"""


def _table() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _GROUPS.split("\n"):
        words = line.split()
        for word in words:
            if not word.isascii():
                found.setdefault(word, words[0])
    return found


_SAME = _table()
# The longest first, or a part of a word would be taken for the word.
_ANY: Final = re.compile("|".join(re.escape(word) for word in sorted(_SAME, key=len, reverse=True)))


WORDS: Final = frozenset(word for word in _SAME.values() if len(word) > 1)
"""The words that stand for others."""


def unified(text: str) -> str:
    """A text with one word for all that mean the same."""
    return _ANY.sub(lambda found: _SAME[found[0]], text)
