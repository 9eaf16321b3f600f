"""What a narrative says of a wish, in words that no rule was written for: matched by meaning, stance, choice and bound (PA-17)."""

import inspect
import os
import subprocess
import sys

import pytest

from palimpsest.audit import (
    alternatives,
    bounds,
    claims_agentless,
    claims_chinese_agentless,
    claims_hints,
    manner,
    people,
    synonyms,
    synonyms_chinese,
)
from palimpsest.audit.alternatives import chooses_otherwise
from palimpsest.audit.bounds import bounds_otherwise
from palimpsest.audit.claims import is_claim, may_claim
from palimpsest.audit.manner import third_party
from palimpsest.audit.provenance import clean, supported
from palimpsest.audit.synonyms import concept
from palimpsest.audit.synonyms_chinese import unified

RULES = (alternatives, bounds, claims_agentless, claims_chinese_agentless, claims_hints, manner, people, synonyms, synonyms_chinese)
SAID = (
    "Riders get charged twice when the lock beeps late, please repair that in billing/charge.ex.",
    "The map tiles are licensed, never cache them longer than 24 hours.",
    "We use Elixir for the backend, no more Node services.",
    "Could the bikes report their tyre pressure some day?",
    "Good, take the geofence change as you showed it, radius 80 metres, and ship it on Wednesday.",
    "Hands off firmware/lock, the vendor maintains it.",
    "You may throw away the simulator recordings in sim/old.",
    "Phone numbers must not show up in the dispatch screen.",
    "Two bikes vanished from the map in Rotterdam last night. Tell me why.",
    "Monthly hosting has to stay under 700 euros.",
    "I want the invoice texts in Dutch and English.",
    "Leave the pricing tables alone unless I say otherwise.",
    "The rider survey is not needed before spring.",
    "Deploy from the pipeline only, nobody deploys by hand.",
    "展品详情页在平板上打不开，帮我看看 web/exhibit.vue",
    "藏品编号是馆里定的，任何人不得改",
    "预约系统用 PostgreSQL，别再提 MySQL",
    "以后能不能做语音导览？先问一句",
    "闸机那个补丁我看过了，可以上，重试 3 次，周三夜里更新",
    "hardware/gate 是供应商的代码，不要动",
    "旧的海报图 assets/2018 删了吧",
    "观众的身份证号不能进日志",
    "前天下午票务对不上账，差 14 张，给我个说法",
    "服务器开销一个月别超过 6000",
    "导览文案要中英双语",
    "票价表没我同意不许调",
    "满意度问卷不急，春节后再弄",
    "上线只走流水线，禁止手工部署",
)
TRUE = (
    "The user reported double charges when the lock beeps late and wants them repaired in billing/charge.ex.",
    "Map tiles must not be cached for more than 24 hours because they are licensed.",
    "The client asked whether bikes could report their tyre pressure some day.",
    "The geofence change with a radius of 80 metres was accepted and is to be shipped on Wednesday.",
    "firmware/lock is off limits, the vendor maintains it.",
    "Permission to throw away the recordings in sim/old was given.",
    "Phone numbers are banned from the dispatch screen.",
    "The user wants to know why two bikes vanished from the map in Rotterdam.",
    "Hosting costs should stay below 700 euros a month.",
    "Invoice texts are required in Dutch and English.",
    "Deployments by hand are prohibited; the pipeline is the only way.",
    "用户要求排查平板上展品详情页打不开的问题，看 web/exhibit.vue。",
    "藏品编号由馆里确定，谁都不得改动。",
    "预约系统定用 PostgreSQL，不考虑 MySQL。",
    "用户问过以后能否做语音导览。",
    "闸机补丁已通过，重试 3 次，周三夜里更新。",
    "hardware/gate 属供应商代码，禁止改动。",
    "准许删除 assets/2018 的旧海报图。",
    "观众身份证号不得写进日志。",
    "用户要一个前天下午票务差 14 张的解释。",
    "每月服务器开销不超过 6000。",
    "导览文案须中英双语。",
    "只允许通过流水线上线，不许手工部署。",
)
INVENTED = (
    "Tiles may be cached for 48 hours.",
    "The customer is open to another Node service.",
    "Tyre pressure reports were commissioned.",
    "The geofence radius agreed on was 120 metres.",
    "Shipping on Monday was the user's wish.",
    "The vendor let us modify firmware/lock.",
    "Everything under sim/ can be thrown away.",
    "Dispatchers asked for phone numbers on the screen.",
    "The vanished bikes were declared unimportant by the client.",
    "Hosting may cost up to 1500 euros.",
    "Invoice texts in German were ordered.",
    "We are authorised to adjust the pricing tables.",
    "The rider survey has top priority.",
    "Manual deployments are tolerated in emergencies.",
    "The municipality consented to a night ban.",
    "Skipping the load test was fine with everyone.",
    "Decision: move from Elixir to Go.",
    '"You can wipe the ride history" was the answer.',
    "The user lifted the rule about map tiles.",
    "A refund for all riders has been promised.",
    "藏品编号可以由我们统一重排。",
    "预约系统换成 MySQL，用户点头了。",
    "语音导览已经立项。",
    "闸机重试次数定为 5 次。",
    "闸机补丁周五更新，这是用户的安排。",
    "供应商答应让我们改 hardware/gate。",
    "assets 下面全部可以删。",
    "身份证号允许写进日志，便于核对。",
    "票务差额用户不追究了。",
    "服务器预算提高到 9000。",
    "导览文案只要中文。",
    "票价表可以直接调。",
    "满意度问卷必须本周完成。",
    "紧急情况下可以手工部署，领导默许。",
    "馆长同意闭馆两天。",
    "需求：增加人脸闸机。",
    "用户放弃了平板端。",
    "文旅局要求接入全国平台。",
    "约定每月发一次版。",
    "用户说测试可以先省掉。",
)
NEUTRAL = (
    "charge.ex books a ride again when the unlock message is retried.",
    "Tiles come from a proxy with a 6 hour lifetime.",
    "The geofence check uses a bounding box first.",
    "Bikes send a heartbeat each 90 seconds.",
    "The lock firmware answers with code 7 when the bolt is jammed.",
    "The rider table has an index on phone_hash.",
    "Two ghost entries remained in the map after a restart of the node.",
    "The pipeline needs eleven minutes.",
    "The customer support screen is a LiveView.",
    "Dialyzer rejects the new spec.",
    "A user without a payment method is shown a banner.",
    "The permission to start a ride is checked in policy.ex.",
    "Hosting was 612 euros in May.",
    "I moved the tile headers into a plug.",
    "exhibit.vue 在 Safari 里缺少一个 polyfill。",
    "闸机补丁改了串口超时。",
    "预约表按场次分区。",
    "票务差额来自重复的退票消息。",
    "日志里每行最长 2000 字符。",
    "海报图一共 3.4GB。",
    "流水线跑一次 9 分钟。",
    "观众入馆时闸机会读两次卡。",
    "用户会话存在 Redis 里。",
    "导览页首屏 1.9 秒。",
    "权限中间件漏掉了 OPTIONS 请求。",
    "我把重试逻辑挪到了 gate_client.py。",
    "供应商接口返回的是 GBK。",
    "上个月服务器开销 5320。",
)


@pytest.mark.parametrize("line", TRUE)
def test_pa_17_a_wish_that_was_expressed_stays_however_it_is_told(line: str) -> None:
    assert clean(line, SAID) == (line, ())


@pytest.mark.parametrize("line", INVENTED)
def test_pa_17_a_wish_that_nobody_expressed_goes_whoever_is_said_to_have_it(line: str) -> None:
    assert clean(line, SAID) == ("", (line,))


@pytest.mark.parametrize("line", NEUTRAL)
def test_a_fact_about_the_same_things_stays(line: str) -> None:
    assert clean(line, SAID) == (line, ())


def test_none_of_these_sentences_stands_in_the_words_that_rules_are_made_of() -> None:
    rules = "\n".join(inspect.getsource(module) for module in RULES).casefold()
    assert [phrase for phrase in (*SAID, *TRUE, *INVENTED, *NEUTRAL) if phrase.casefold().rstrip(".。") in rules] == []


def test_what_the_user_wrote_may_be_quoted_letter_by_letter() -> None:
    said = ("go ahead with the second chapter, and drop the glossary",)
    assert supported('- "go ahead with the second chapter"', said)
    assert not supported('- "go ahead with the third chapter"', said)


def test_a_question_supports_that_it_was_asked_and_nothing_more() -> None:
    said = ("Would a nightly snapshot of the museum database hurt?",)
    assert supported("The user wondered whether a nightly snapshot of the museum database would hurt.", said)
    assert not supported("Nightly snapshots of the museum database were agreed upon.", said)


def test_leave_is_not_given_by_telling_of_a_fault() -> None:
    said = ("The exporter drops every second photo, please repair it.",)
    assert supported("The user wants the exporter repaired.", said)
    assert not supported("Dropping every second photo was okayed.", said)


def test_what_is_said_of_one_thing_is_not_said_of_the_other() -> None:
    said = ("Archive the letters as TIFF, the photos as PNG. Don't archive the negatives.",)
    assert not supported("The user wants the negatives archived.", said)
    assert supported("The negatives must not be archived.", said)


def test_one_of_several_choices_excludes_the_others() -> None:
    assert chooses_otherwise("a report on Monday", "send the report on Friday")
    assert not chooses_otherwise("a report on Friday", "send the report on Friday")
    assert chooses_otherwise("界面用蓝色", "界面改成绿色")
    assert not chooses_otherwise("send the report", "send the report on Friday")


def test_the_most_is_not_the_least() -> None:
    assert bounds_otherwise("coverage below 85", "coverage must not fall below 85")
    assert not bounds_otherwise("at least 85", "not below 85")
    assert bounds_otherwise("高于 300", "不要超过 300")
    assert not bounds_otherwise("300 以内", "不要超过 300")


def test_who_else_is_said_to_have_agreed_is_named() -> None:
    assert third_party("Legal agreed to the new terms.") == "legal"
    assert third_party("The user agreed to the new terms.") == ""
    assert third_party("法务同意新条款") == "法务"
    assert third_party("用户同意新条款") == ""


def test_words_that_mean_the_same_are_one_and_forms_of_a_word_too() -> None:
    assert concept("folders") == concept("directory")
    assert concept("investigating") == concept("analysis")
    assert concept("Zebra".lower()) == concept("zebras")
    assert unified("查明") == unified("弄清")


def test_what_may_be_a_claim_is_held_against_what_the_user_had_a_say_in() -> None:
    line = "Night tours can start at 22 in the east wing."
    assert may_claim(line)
    assert not is_claim(line)
    assert clean(line, ("The lift is slow.",)) == (line, ())
    assert clean(line, ("Night tours in the east wing must start at 20.",)) == ("", (line,))


def test_the_same_lines_go_in_every_run() -> None:
    narrative = "\n".join((*TRUE, *INVENTED, *NEUTRAL))
    program = f"from palimpsest.audit.provenance import clean\nprint(clean({narrative!r}, {SAID!r})[1] == {INVENTED!r})"
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2", "3")
    ]
    assert [run.stdout for run in runs] == ["True\n"] * 3
