"""Real models from packages: ids and losses beside llama.cpp on the same file, and losses beside
transformers in f32 with the same weights, by position from 256 to 8,192 tokens.

LONGSHOT_DOCUMENTS names a folder with text files of 40 kB and more, the first eight of which are
read; without it they are made from the system's manual pages of Perl. LONGSHOT_TOKENS cuts each."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import torch
import xllamacpp
from transformers import AutoModelForCausalLM

import check

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("LONGSHOT_LIBRARY", str(pathlib.Path(check.program).parent / "liblongshot.so"))
import longshot  # noqa: E402: the library is named above

TOKENS = int(os.environ.get("LONGSHOT_TOKENS", 8192))
CHUNK = 512
# name: bound on a span's mean beside llama.cpp, whose products round activations to 8 bits, and on
# each token beside f32
CASES = {"smollm2": (2e-2, 1e-4), "gemma3": (2e-2, 1e-4)}
DOCUMENTS = ["perlfunc", "perlop", "perlre", "perlvar", "perlguts", "perlapi", "perlunicode", "perldebguts"]
POD = pathlib.Path("/usr/share/perl")


def documents():
    folder = os.environ.get("LONGSHOT_DOCUMENTS")
    paths = sorted(pathlib.Path(folder).iterdir()) if folder else [
        next(POD.rglob(f"{name}.pod"), None) for name in DOCUMENTS]
    texts = [path.read_bytes()[:60000].decode("utf-8", "ignore").encode() for path in paths if path]
    if len(texts) < 8:
        raise RuntimeError("fewer than 8 documents: install perl-doc or set LONGSHOT_DOCUMENTS")
    return texts[:8]


class LlamaCpp:
    """llama.cpp's C interface, as the package carries it: ids, and the loss of each token."""

    class Params(ctypes.Structure):  # larger than its parameter structs, which are passed by value
        _fields_ = [("words", ctypes.c_uint32 * 256)]

    class Batch(ctypes.Structure):
        _fields_ = [("count", ctypes.c_int32), ("token", ctypes.c_void_p), ("embd", ctypes.c_void_p),
                    ("position", ctypes.c_void_p), ("sequences", ctypes.c_void_p),
                    ("sequence", ctypes.c_void_p), ("logits", ctypes.c_void_p)]

    def __init__(self, path):
        self.so = ctypes.CDLL(xllamacpp.__path__[0] + "/xllamacpp.abi3.so")
        pointer, params = ctypes.c_void_p, self.Params
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda *_: None)
        self.so.llama_log_set(self.quiet, None)
        self.so.llama_backend_init()
        defaults = self.call("llama_model_default_params", params)()
        self.model = self.call("llama_model_load_from_file", pointer, ctypes.c_char_p, params)(
            str(path).encode(), defaults)
        self.vocabulary = self.call("llama_model_get_vocab", pointer, pointer)(self.model)
        self.words = self.call("llama_vocab_n_tokens", ctypes.c_int32, pointer)(self.vocabulary)

    def call(self, name, result, *kinds):
        function = getattr(self.so, name)
        function.restype, function.argtypes = result, kinds
        return function

    def encode(self, text):
        out = (ctypes.c_int32 * (len(text) + 16))()
        number, flag, pointer = ctypes.c_int32, ctypes.c_bool, ctypes.c_void_p
        count = self.call("llama_tokenize", number, pointer, ctypes.c_char_p, number, pointer, number,
                          flag, flag)(self.vocabulary, text, len(text), out, len(out), False, False)
        return np.array(out[:count], dtype=np.int32)

    def loss(self, ids):
        number, pointer = ctypes.c_int32, ctypes.c_void_p
        params = self.call("llama_context_default_params", self.Params)()
        if list(params.words[:3]) != [512, 2048, 512]:
            raise RuntimeError("llama.cpp's context parameters have another layout")
        params.words[0], params.words[1], params.words[2] = len(ids) + 8, CHUNK, CHUNK
        context = self.call("llama_init_from_model", pointer, pointer, self.Params)(self.model, params)
        decode = self.call("llama_decode", number, pointer, self.Batch)
        logits = self.call("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), pointer, number)
        losses = []
        for start in range(0, len(ids), CHUNK):
            chunk = np.ascontiguousarray(ids[start:start + CHUNK])
            count = len(chunk)
            position = np.arange(start, start + count, dtype=np.int32)
            ones, zero, wanted = np.ones(count, np.int32), np.zeros(1, np.int32), np.ones(count, np.int8)
            of = (pointer * count)(*[zero.ctypes.data] * count)
            batch = self.Batch(count, chunk.ctypes.data, None, position.ctypes.data, ones.ctypes.data,
                               ctypes.cast(of, pointer), wanted.ctypes.data)
            if decode(context, batch) != 0:
                raise RuntimeError("llama.cpp did not decode")
            for i in range(min(count, len(ids) - start - 1)):
                row = np.ctypeslib.as_array(logits(context, i), (self.words,)).astype(np.float64)
                most = row.max()
                losses.append(most + np.log(np.exp(row - most).sum()) - row[ids[start + i + 1]])
        self.call("llama_free", None, pointer)(context)
        return np.array(losses)


def of_transformers(model, ids):
    """Losses in f32, the last step in f64; logits of one chunk at a time."""
    losses = []
    with torch.no_grad():
        hidden = model.model(torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0]
        for start in range(0, len(ids) - 1, CHUNK):
            targets = torch.from_numpy(ids[start + 1:start + 1 + CHUNK].astype(np.int64))
            logits = model.lm_head(hidden[start:start + len(targets)]).double()
            losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none").numpy())
    return np.concatenate(losses)


def one(name, bounds):
    beside_llama, beside_f32 = bounds
    (gguf,) = (ROOT / "models" / name).glob("*.gguf")
    ours, theirs = longshot.open(gguf, dtype="f32"), LlamaCpp(gguf)
    folder = pathlib.Path(check.work, f"{name}.hf")
    shutil.rmtree(folder, ignore_errors=True)
    check.longshot("export", str(gguf), f"out={folder}")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    same, sums = True, {}
    for text in documents():
        ids = theirs.encode(text)
        same &= list(ids) == list(ours.tokenize(text))
        ids = ids[:TOKENS]
        a, b = np.asarray(ours.loss(ids), np.float64), theirs.loss(ids)
        c = of_transformers(model, ids)
        start, end = 0, 256
        while start < len(a):
            sums.setdefault((start, end), []).append((a[start:end], b[start:end], c[start:end]))
            start, end = end, 2 * end
    check.report(f"{name}: ids", same, "as llama.cpp's, 8 documents")
    for (start, end), parts in sums.items():
        a, b, c = (np.concatenate(column) for column in zip(*parts))
        mean, worst = abs(a.mean() - b.mean()), np.abs(a - c).max()
        check.report(f"{name}: tokens {start} to {end}", mean <= beside_llama and worst <= beside_f32,
                     f"loss {a.mean():.5f}, llama.cpp {b.mean():.5f} (bound {beside_llama:g}); "
                     f"beside f32 {np.abs(a - c).mean():.1e}, a token at most {worst:.1e} "
                     f"(bound {beside_f32:g})")


if __name__ == "__main__":
    for name in CASES:
        if not list((ROOT / "models" / name).glob("*.gguf")):
            subprocess.run([ROOT / "script" / "get-model", name], check=True)
    check.each(CASES, one)
