"""serve_page.py DOM ADDRESS RUN: what a browser drew of a server's page, against the server."""
import glob
import html
import json
import re
import sys
import urllib.request

dom, address, run = open(sys.argv[1]).read(), sys.argv[2], sys.argv[3]
tokens = [(html.unescape(text), float(loss) if loss else None) for loss, text in
          re.findall(r'<span[^>]*?(?:data-loss="([0-9.]+)"|title="[^"]*")[^>]*>([^<]*)</span>',
                     re.search(r'<div id="text".*?</div>', dom, re.S).group(0))]
body = {"prompt": "Once upon a time", "max_tokens": 32, "echo": True, "logprobs": 5,
        "temperature": 0.8, "top_p": 1, "seed": 0}
answer = json.load(urllib.request.urlopen(urllib.request.Request(
    address + "/v1/completions", json.dumps(body).encode())))["choices"][0]["logprobs"]
wanted = [None if p is None else -p for p in answer["token_logprobs"]]
assert len(tokens) == len(wanted) == 16 + 32, (len(tokens), len(wanted))
for (text, loss), value, token in zip(tokens, wanted, answer["tokens"]):
    assert (loss is None) == (value is None) and (loss is None or abs(loss - value) < 1e-4), (text, loss, value)
    shown = "\u25ab" if token.startswith("bytes:") else token.replace("\r", "\n")  # as HTML is read
    assert text == shown, (text, token)
assert dom.count('class="made"') == 32
line = re.search(r'<polyline[^>]*data-run="run"[^>]*points="([^"]*)"', dom)
rows = [json.loads(row) for row in open(f"{run}/metrics.jsonl")]
assert line and len(line.group(1).split()) == len(rows), "the curve of the run"
assert f"step {rows[-1]['step']}, loss {rows[-1]['loss']:.4f}" in dom
measured = json.load(open(glob.glob(f"{run}/eval/*.json")[0]))["results"]
for result in measured:
    cells = ["run", result["protocol"], str(result["length"]), f"{result['loss']:.4f}",
             f"{result['excess']:.4f}", str(result["tokens"])]
    assert "<tr" in dom and "".join(f"<td>{cell}</td>" for cell in cells) in dom, cells
assert len(measured) == 2
study = html.unescape(re.search(r'<iframe id="study"[^>]*srcdoc="([^"]*)"', dom).group(1))
assert "two small arms" in study and "<svg" in study and "alibi" in study, study[:500]
print(f"{len(tokens)} tokens and {len(rows)} steps drawn as they are")
