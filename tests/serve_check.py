"""serve_check.py PROGRAM SOURCE: what a server answers, to clients that behave and to those that do
not."""
import json
import re
import signal
import socket
import sys
import tempfile
import threading
import time

from serve_client import Server, events, wait_until

program, source = sys.argv[1:3]
LLAMA, GPT2 = f"{source}/tests/golden/checkpoints/llama-llama3-sharded", f"{source}/tests/golden/checkpoints/gpt2"


def raw(server, data, seconds=10, finish=True):
    """What comes back for bytes as they are."""
    own = socket.create_connection((server.host, int(server.port)), timeout=seconds)
    try:
        own.sendall(data)
        got = b""
        while more := own.recv(65536):
            got += more
            if not finish and b"\r\n\r\n" in got:
                break
    except ConnectionError:
        pass
    finally:
        own.close()
    return got


with Server(program, LLAMA, "read_seconds=3") as server:
    # ---- completions ----
    ask = lambda **body: server.json("/v1/completions", body)
    ids = [5, 9, 2, 40, 7, 7]
    scored = ask(prompt=[ids], max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234)
    choice = scored["choices"][0]
    logprobs = choice["logprobs"]
    assert len(logprobs["token_logprobs"]) == len(ids) + 1 and logprobs["token_logprobs"][0] is None
    for value, top in zip(logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:]):
        assert value in top.values() and max(top.values()) >= value  # the same float in both
    assert logprobs["token_logprobs"][-1] == max(logprobs["top_logprobs"][-1].values())  # greedy
    assert scored["usage"] == {"prompt_tokens": 6, "completion_tokens": 1, "total_tokens": 7,
                               "prompt_tokens_details": {"cached_tokens": 0}}
    zero = ask(prompt=ids, max_tokens=0, logprobs=10, echo=True)["choices"][0]
    assert zero["logprobs"]["token_logprobs"] == logprobs["token_logprobs"][:-1]
    assert zero["finish_reason"] == "length" and choice["text"].startswith(zero["text"])
    # a text and its ids are the same prompt; texts get what the checkpoint expects around them
    text = "Hello wörld"
    tokens = server.json("/tokenize", {"prompt": text})["tokens"]
    bare = server.json("/tokenize", {"content": text, "add_special_tokens": False})["tokens"]
    assert tokens == [0] + bare, (tokens, bare)
    assert server.json("/detokenize", {"tokens": bare})["prompt"] == text
    for prompt in (text, [text], tokens, [tokens]):
        assert ask(prompt=prompt, max_tokens=4, seed=2) ["choices"] == \
            ask(prompt=tokens, max_tokens=4, seed=2)["choices"]
    offsets = ask(prompt=bare, max_tokens=0, echo=True, logprobs=0)["choices"][0]
    assert offsets["text"] == text and offsets["logprobs"]["text_offset"][0] == 0
    assert all(a <= b <= len(text) for a, b in zip(offsets["logprobs"]["text_offset"],
                                                   offsets["logprobs"]["text_offset"][1:]))
    # lists, n, seeds
    many = ask(prompt=["a", "b"], n=3, max_tokens=5, seed=1)["choices"]
    assert [c["index"] for c in many] == list(range(6))
    assert many[3]["text"] == ask(prompt="b", n=1, max_tokens=5, seed=1)["choices"][0]["text"]
    assert len({c["text"] for c in many[:3]}) > 1
    assert ask(prompt="a", max_tokens=5, seed=2)["choices"] != ask(prompt="a", max_tokens=5, seed=1)["choices"]
    assert ask(prompt="a", max_tokens=5, temperature=0)["choices"] == \
        ask(prompt="a", max_tokens=5, top_k=1)["choices"]
    # stops
    whole = ask(prompt="a", max_tokens=12, seed=3)["choices"][0]["text"]
    stop = re.search("[ -~]{1,2}", whole[1:]).group()  # of a random model: what is text of it
    cut = ask(prompt="a", max_tokens=12, seed=3, stop=[stop, "never there"])["choices"][0]
    assert cut["text"] == whole[:whole.index(stop)] and cut["finish_reason"] == "stop", (whole, cut)
    # streams are the whole, stops included
    for more in ({}, {"stop": stop}, {"echo": True, "logprobs": 2}, {"n": 2}):
        body = dict(prompt="a", max_tokens=12, seed=3, **more)
        code, got = server.ask("/v1/completions", dict(body, stream=True, stream_options={"include_usage": True}))
        parts = events(got)
        usage = parts.pop()
        assert code == 200 and usage["choices"] == [] and usage["usage"]["completion_tokens"] > 0
        for wanted in server.json("/v1/completions", body)["choices"]:
            own = [p["choices"][0] for p in parts if p["choices"][0]["index"] == wanted["index"]]
            assert "".join(p["text"] for p in own) == wanted["text"]
            assert [p["finish_reason"] for p in own] == [None] * (len(own) - 1) + [wanted["finish_reason"]]
            if more.get("logprobs"):
                for key in wanted["logprobs"]:
                    assert sum((p["logprobs"][key] for p in own), []) == wanted["logprobs"][key], key
    # ---- chats ----
    chat = server.json("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
    assert chat["object"] == "chat.completion" and chat["choices"][0]["message"]["role"] == "assistant"
    code, got = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}],
                                                    "max_tokens": 4, "stream": True})
    parts = events(got)
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(p["choices"][0]["delta"]["content"] for p in parts) == chat["choices"][0]["message"]["content"]
    # ---- the rest ----
    about = server.json("/tokenizer_info")
    for key in ("bos_token", "eos_token"):
        assert len(server.json("/tokenize", {"prompt": about[key], "add_special_tokens": False})["tokens"]) == 1
    assert server.json("/health") == {"status": "ok"}
    model = server.json("/v1/models")["data"][0]
    assert model["id"] == "llama-llama3-sharded"
    assert ask(model=model["id"], prompt="a")["choices"]
    assert server.ask("/")[1].startswith("<!doctype html>")
    assert json.loads(server.ask("/studies.json")[1])["studies"] == []
    # ---- what is refused, each with its sentence ----
    refused = [
        ("/v1/completions", {"prompt": "x", "max_tokens": 10**6}, 400, "fit"),
        ("/v1/completions", {"prompt": [10**6]}, 400, "token ids"),
        ("/v1/completions", {"prompt": [-1]}, 400, "token ids"),
        ("/v1/completions", {"prompt": [[]]}, 400, "1 to"),
        ("/v1/completions", {"prompt": ["x"] * 200}, 400, "choices"),
        ("/v1/completions", {"prompt": "x", "n": 0}, 400, "n must"),
        ("/v1/completions", {"prompt": "x", "temperature": -1}, 400, "temperature"),
        ("/v1/completions", {"prompt": "x", "top_p": 2}, 400, "top_p"),
        ("/v1/completions", {"prompt": "x", "logprobs": 99}, 400, "logprobs"),
        ("/v1/completions", {"prompt": "x", "seed": 1.5}, 400, "seed"),
        ("/v1/completions", {"prompt": "x", "stop": ""}, 400, "stop"),
        ("/v1/completions", {"prompt": "x", "stop": ["a"] * 17}, 400, "stops"),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"1": 5}}, 400, "logit_bias"),
        ("/v1/completions", {"prompt": "x", "best_off": 5}, 400, "best_off"),
        ("/v1/completions", {"prompt": "x", "model": "gpt-4"}, 400, "gpt-4"),
        ("/v1/completions", {"prompt": {"a": 1}}, 400, "prompt"),
        ("/v1/completions", {}, 400, "prompt"),
        ("/v1/completions", [1], 400, "object"),
        ("/v1/completions", b"", 400, "request"),
        ("/v1/completions", b"{\"prompt\": \"\xff\"}", 400, "decode"),
        ("/v1/completions", b"[" * 5000, 400, "nested"),
        ("/v1/completions", b"{\"prompt\": 1e999}", 400, ""),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user"}]}, 400, "content"),
        ("/v1/chat/completions", {"messages": [{"role": "u", "content": "x"}], "tools": [{}]}, 400, "tools"),
        ("/tokenize", {"prompt": 5}, 400, "text"),
        ("/detokenize", {"tokens": [10**9]}, 400, "ids"),
        ("/nothing", None, 404, "path"),
        ("/v1/completions", None, 405, "method"),
        ("/study?number=0", None, 400, "study"),
        ("/study?number=../../etc", None, 400, "study"),
    ]
    for path, body, code, word in refused:
        got = server.ask(path, body)
        assert got[0] == code and word in json.loads(got[1])["error"]["message"], (path, str(body)[:80], got)
    # requests that are no HTTP, floods of headers, and bodies that never stop
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"A" * 200000,
                 b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 20000 + b"\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200000 + b"\r\n\r\n"):
        got = raw(server, data)
        assert got == b"" or got[9:10] == b"4", got[:100]
    got = raw(server, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n",
              finish=False)
    assert b" 413 " in got and b"body_kib" in got, got[:100]  # before the body is sent
    got = raw(server, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
              + b"10000\r\n" + b"x" * 65536 + b"\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 80 + b"0\r\n\r\n", finish=False)
    assert b" 413 " in got, got[:100]
    got = raw(server, b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    assert b" 403 " in got, got[:100]
    assert server.json("/health") == {"status": "ok"}

# ---- prompts that begin alike ----
with Server(program, LLAMA, "chunk=8", "context=64") as server:
    first = server.json("/v1/completions", {"prompt": list(range(1, 41)), "max_tokens": 4})
    again = server.json("/v1/completions", {"prompt": list(range(1, 41)), "max_tokens": 4})
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 32
    assert again["choices"] == first["choices"]
    assert server.metric("reused_tokens_total") == 32

# ---- a key ----
with tempfile.NamedTemporaryFile("w", suffix=".key") as file:
    file.write("a secret of some length\n")
    file.flush()
    with Server(program, GPT2, f"key_file={file.name}", "name=m") as server:
        key = {"Authorization": "Bearer a secret of some length"}
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer a secret of some lengtH"},
                        {"Authorization": "Basic a secret of some length"}):
            for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/models", None), ("/metrics", None),
                               ("/studies.json", None), ("/tokenize", {"prompt": "x"})):
                assert server.ask(path, body, headers=headers)[0] == 401
        assert server.ask("/health")[0] == 200
        assert server.json("/v1/completions", {"prompt": "x", "model": "m"}, headers=key)["choices"]
        assert server.ask("/v1/chat/completions", {"messages": [{"role": "u", "content": "x"}]}, headers=key)[0] == 400

# ---- limits: a request that comes too slowly, a queue that is full, time that is over ----
with Server(program, GPT2, "read_seconds=0.5", "queue=1", "sequences=1", "seconds=3") as server:
    began = time.time()
    own = socket.create_connection((server.host, int(server.port)), timeout=20)
    own.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
    try:
        while time.time() - began < 15:
            own.sendall(b"x")
            time.sleep(0.1)
        closed = False
    except OSError:
        closed = True
    assert closed, "a byte now and then keeps a connection open"
    codes = []
    long = {"prompt": [1], "max_tokens": 40, "n": 100}
    threads = [threading.Thread(target=lambda: codes.append(server.ask("/v1/completions", long)[0])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 429 in codes and 200 in codes and set(codes) <= {200, 429, 503}, codes

# ---- a client that goes away costs nothing ----
with Server(program, GPT2) as server:
    own = server.connect()
    own.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 40, "n": 128}))
    time.sleep(0.02)
    own.close()
    wait_until(lambda: server.metric("sequences_active") == 0 and server.metric("requests_queued") == 0)
    own = server.connect()
    own.request("POST", "/v1/completions", json.dumps({"prompt": [1], "max_tokens": 40, "n": 128, "stream": True}))
    own.getresponse().read(100)
    own.close()
    wait_until(lambda: server.metric("sequences_active") == 0)
    assert server.json("/v1/completions", {"prompt": "x"})["choices"]
    # ---- idle connections do not keep a server from ending ----
    idle = socket.create_connection((server.host, int(server.port)))
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=20) == 0
print("all as it should be")
