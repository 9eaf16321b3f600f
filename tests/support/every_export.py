"""Prototype."""
import sys, json, tempfile, time, difflib
from pathlib import Path
from corpus import CORPUS
from pal_runs import Pal
from palimpsest.core.log import Log
from palimpsest.foreign.messages import write_request
from palimpsest.stores.home import Home
from palimpsest.foreign.parts import wire_of

DEF = {"anthropic": "claude-sonnet-4-5", "responses": "gpt-5.5"}
KEY = {"anthropic": "messages", "responses": "input"}
TO = {"claude": "anthropic", "codex": "responses"}

def strip(v):
    if isinstance(v, dict):
        return {k: strip(x) for k, x in v.items() if k != "cache_control"}
    if isinstance(v, list):
        return [strip(x) for x in v]
    return v

def encoded(home, session, wire, model):
    with home.open(session, write=False) as log:
        r = write_request(log, home.blobs, wire, model=model)
    return strip(json.loads(r.body))[KEY[wire]]

def model_for(home, session, wire):
    with home.open(session, write=False) as log:
        m = log.view.model
    from palimpsest.wire.cards import recorded_card
    if wire_of(m) == wire:
        return m
    return DEF[wire]

def flat(msgs, wire):
    out = []
    for m in msgs:
        if wire == "anthropic":
            for b in m["content"]:
                out.append(json.dumps([m["role"], b], ensure_ascii=False, sort_keys=True))
            out.append("--")
        else:
            if m["type"] == "message":
                for b in m["content"]:
                    out.append(json.dumps([m["role"], m.get("phase"), b], ensure_ascii=False, sort_keys=True))
                out.append("--")
            else:
                out.append(json.dumps(m, ensure_ascii=False, sort_keys=True))
    return out

def check(path, folder, verbose=True, pats=()):
    pal = Pal(folder / "one")
    done = pal("import", str(path), "--json") if False else pal("import", str(path))
    sessions = list(pal.home.store.sessions())
    main = [s for s in sessions]
    res = []
    for s in main:
        for folded in (False, True):
            if folded:
                r = pal("compact", s, "--no-model", "--profile", "palimpsest")
                if "nothing to fold" in r.output or r.exit_code:
                    res.append((s, "fold", r.output.strip()[-200:])); continue
            for to, wire in TO.items():
                t=time.time()
                out = folder / f"{s}-{folded}-{to}"
                out.mkdir()
                name = "11111111-2222-3333-4444-555555555555.jsonl" if to == "claude" else "rollout-written.jsonl"
                r = pal("export", s, "--to", to, "--out", str(out / name))
                if r.exit_code:
                    res.append((s, to, folded, r.output[-300:])); continue
                other = Pal(out / "home")
                r = other("import", str(out / name))
                back = [x for x in other.home.store.sessions() if "." not in x.split("-",1)[1]] if to=="claude" else list(other.home.store.sessions())
                if len(back) != 1:
                    res.append((s, to, folded, "back", back, r.output[-300:])); 
                    if not back: continue
                model = model_for(pal.home, s, wire)
                try:
                    a = encoded(pal.home, s, wire, model)
                    b = encoded(other.home, back[0], wire, model)
                except Exception as e:
                    res.append((s, to, folded, repr(e))); continue
                same = a == b
                fa, fb = flat(a, wire), flat(b, wire)
                res.append((s, to, folded, "same" if same else "DIFF", len(fa), len(fb), f"{time.time()-t:.1f}s", r.output.strip()[-80:] if "bad" in r.output or 'could' in r.output else ""))
                if not same and verbose:
                    n = 0
                    for line in difflib.unified_diff(fa, fb, "view", "back", n=1, lineterm=""):
                        res.append(("   ", line[:230])); n += 1
                        if n > 24: break
    return res

if __name__ == "__main__":
    pats = sys.argv[1:]
    t0=time.time()
    for path in sorted(p for p in CORPUS.rglob("*") if p.suffix in {".jsonl", ".json", ".traj"} and p.name != "MANIFEST.jsonl"):
        if pats and not any(p in str(path) for p in pats): continue
        with tempfile.TemporaryDirectory() as f:
            print("##", path.name, flush=True)
            for row in check(path, Path(f)):
                print(*row, flush=True)
    print(time.time()-t0)
