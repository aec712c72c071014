"""serve_page.py DOM ADDRESS METRICS: what a browser drew of a server's page, against the server."""
import html
import json
import re
import sys
import urllib.request

dom, address, metrics = open(sys.argv[1]).read(), sys.argv[2], sys.argv[3]
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
line = re.search(r'<polyline[^>]*points="([^"]*)"', dom)
rows = [json.loads(row) for row in open(metrics)]
assert line and len(line.group(1).split()) == len(rows), "the curve of the run"
assert f"step {rows[-1]['step']}, loss {rows[-1]['loss']:.4f}" in dom
print(f"{len(tokens)} tokens and {len(rows)} steps drawn as they are")
