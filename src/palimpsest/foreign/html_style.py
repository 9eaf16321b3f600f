"""How the page of a session looks: light and dark, on a phone, and on paper."""

STYLE = """
:root{color-scheme:light dark;--page:#fbfaf7;--card:#fff;--ink:#22201c;--faint:#6d675d;--line:#e2ddd2;--user:#1f6f54;--edit:#9a6700;
--bad:#b3261e;--code:#f4f1ea;--link:#1d5fa8}
@media (prefers-color-scheme:dark){:root{--page:#171614;--card:#1f1e1b;--ink:#e8e4db;--faint:#a09a8d;--line:#38352f;--user:#6cc5a1;
--edit:#e0b050;--bad:#ff8a80;--code:#272521;--link:#8ab8ee}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI","Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .75rem}
h2{font-size:1.1rem;line-height:1.35;margin:2.5rem 0 .75rem;padding-top:1rem;border-top:1px solid var(--line)}
h1,h2,.text,summary,li,dd{overflow-wrap:anywhere}
a{color:var(--link)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 1rem;font-size:.9rem}
dt{color:var(--faint)}dd{margin:0}
nav{margin:1rem 0;font-size:.95rem}
nav ol{margin:.5rem 0;padding-left:2.2rem}
nav li{margin:.2rem 0}
.by{margin:1rem 0 .25rem;font-size:.8rem;color:var(--faint)}
.by b{color:var(--ink);font-size:.9rem}
.text{white-space:pre-wrap;unicode-bidi:plaintext;tab-size:4}
.said,.answered{padding:.1rem 0 .1rem .9rem;border-left:3px solid var(--line)}
.user,.steering{border-left-color:var(--user)}
.code,.mono{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Noto Sans Mono","Noto Sans Mono CJK SC",monospace}
.code,.mono,.cover{display:block;background:var(--code);border-radius:6px;padding:.6rem .8rem;margin:.4rem 0}
.text>.code{margin:0}
.said>.by,.answered>.by{margin-top:.1rem}
article{margin:.6rem 0}
.mono{max-height:32rem;overflow:auto}
details{margin:.4rem 0;background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.35rem .7rem;font-size:.9rem}
summary{cursor:pointer;color:var(--faint)}
summary b{color:var(--ink)}
.failed>summary b{color:var(--bad)}
.hidden{opacity:.7}
.said.hidden,.answered.hidden{border-left-style:dashed}
.edit{margin:.8rem 0;padding:.5rem .8rem;border:1px dashed var(--edit);border-radius:6px;font-size:.9rem}
.edit>p{margin:0 0 .3rem}
.edit>p b{color:var(--edit)}
.undone>p b{text-decoration:line-through;text-decoration-color:var(--faint)}
.note,.sum{margin:.6rem 0;font-size:.85rem;color:var(--faint)}
.sum{text-align:right;font-variant-numeric:tabular-nums}
ul{margin:.3rem 0;padding-left:1.2rem}
img{display:block;max-width:100%;height:auto;margin:.4rem 0;border:1px solid var(--line);border-radius:6px}
footer{margin-top:3rem;font-size:.8rem;color:var(--faint)}
@media (max-width:40rem){body{padding:1rem .75rem 3rem;font-size:15px}.said,.answered{padding-left:.6rem}dl{grid-template-columns:1fr;gap:0}
dd{margin-bottom:.3rem}.mono{max-height:none}}
@media print{:root{--page:#fff;--card:#fff;--ink:#000;--faint:#444;--line:#bbb;--code:#f5f5f5}body{max-width:none;padding:0;font-size:10pt}
.mono{max-height:none;overflow:visible}details::details-content{content-visibility:visible;block-size:auto}h2,.by,summary{break-after:avoid}}
"""
