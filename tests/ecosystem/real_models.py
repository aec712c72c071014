"""Real models from packages: ids and losses beside llama.cpp on the same file, and losses beside a
reference with the same weights: transformers in f32, or where it is not installed our own f64 of the
exported folder; and llama.cpp with those weights in F32. A table by document and length: the mean
loss of its first 256 to 8,192 tokens.

LONGSHOT_MODELS names the folder of the models. LONGSHOT_DOCUMENTS names a folder with text files of
40 kB and more, the first eight of which are read; without it they are made from the system's manual
pages of Perl. LONGSHOT_TOKENS cuts each, LONGSHOT_REFERENCES is how many are held against the
reference too, LONGSHOT_CASES which models are tried (smollm2,gemma3). LONGSHOT_THREADS: 0 means all."""

import concurrent.futures
import ctypes
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

import check

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("LONGSHOT_LIBRARY", str(pathlib.Path(check.program).parent / "liblongshot.so"))
import longshot  # noqa: E402: the library is named above

MODELS = pathlib.Path(os.environ.get("LONGSHOT_MODELS", ROOT / "models"))
TOKENS = int(os.environ.get("LONGSHOT_TOKENS", 8192))
REFERENCES = int(os.environ.get("LONGSHOT_REFERENCES", 8))
THREADS = int(os.environ.get("LONGSHOT_THREADS", 0))
CHUNK = 512
# name: bound on the mean over documents beside llama.cpp, whose products round activations to 8 bits
# (a single document of 256 tokens may be further off); on a document's mean beside llama.cpp with the
# same weights in an F32 file, where it rounds no more than its cache of keys and values to 16 bits; on
# each token beside the reference
CASES = {"smollm2": (2e-2, 1e-3, 1e-4), "gemma3": (2e-2, 1e-3, 1e-4)}
DOCUMENTS = ["perlfunc", "perlop", "perlre", "perlvar", "perlguts", "perlapi", "perlunicode", "perldebguts"]
POD = pathlib.Path("/usr/share/perl")


def documents():
    """Eight names with their texts."""
    folder = os.environ.get("LONGSHOT_DOCUMENTS")
    paths = sorted(pathlib.Path(folder).iterdir()) if folder else [
        next(POD.rglob(f"{name}.pod"), None) for name in DOCUMENTS]
    texts = [(path.stem, path.read_bytes()[:60000].decode("utf-8", "ignore").encode())
             for path in paths if path]
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
        package = importlib.util.find_spec("xllamacpp").submodule_search_locations[0]
        self.so = ctypes.CDLL(package + "/xllamacpp.abi3.so")
        pointer, params = ctypes.c_void_p, self.Params
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda *_: None)
        self.so.llama_log_set(self.quiet, None)
        self.so.llama_backend_init()
        defaults = self.call("llama_model_default_params", params)()
        self.model = self.call("llama_model_load_from_file", pointer, ctypes.c_char_p, params)(
            str(path).encode(), defaults)
        self.vocabulary = self.call("llama_model_get_vocab", pointer, pointer)(self.model)
        self.words = self.call("llama_vocab_n_tokens", ctypes.c_int32, pointer)(self.vocabulary)
        self.threads = THREADS or len(os.sched_getaffinity(0))
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)

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
        self.call("llama_set_n_threads", None, pointer, number, number)(context, self.threads, self.threads)
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
            rows = [np.ctypeslib.as_array(logits(context, i), (self.words,))
                    for i in range(min(count, len(ids) - start - 1))]
            losses += self.pool.map(row_loss, rows, ids[start + 1:start + 1 + len(rows)])
        self.call("llama_free", None, pointer)(context)
        return np.array(losses)


def row_loss(row, target):
    row = row.astype(np.float64)
    most = row.max()
    return most + np.log(np.exp(row - most).sum()) - row[target]


class Reference:
    """Losses with the weights that the file's blocks stand for, written out in f32: by transformers
    in f32, the last step in f64, or by our own f64 kernels."""

    def __init__(self, gguf, folder):
        shutil.rmtree(folder, ignore_errors=True)
        check.longshot("export", str(gguf), f"out={folder}")
        self.model = None
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError:
            self.name, self.own = "our f64", longshot.open(folder, dtype="f64", threads=THREADS)
            return
        self.name, self.torch = "transformers f32", torch
        if THREADS:
            torch.set_num_threads(THREADS)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def loss(self, ids):
        if self.model is None:
            return np.asarray(self.own.loss(ids), np.float64)
        torch, losses = self.torch, []
        with torch.no_grad():
            hidden = self.model.model(torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0]
            for start in range(0, len(ids) - 1, CHUNK):  # logits of one chunk at a time
                targets = torch.from_numpy(ids[start + 1:start + 1 + CHUNK].astype(np.int64))
                logits = self.model.lm_head(hidden[start:start + len(targets)]).double()
                losses.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none").numpy())
        return np.concatenate(losses)


def in_f32(gguf, path):
    path.unlink(missing_ok=True)
    check.longshot("export", str(gguf), "to=gguf", "dtype=f32", f"out={path}")
    return path


def one(name, bounds):
    beside_llama, beside_llama_f32, beside_reference = bounds
    (gguf,) = (MODELS / name).glob("*.gguf")
    ours, theirs = longshot.open(gguf, dtype="f32", threads=THREADS), LlamaCpp(gguf)
    reference = Reference(gguf, pathlib.Path(check.work, f"{name}.hf")) if REFERENCES > 0 else None
    unrounded = LlamaCpp(in_f32(gguf, pathlib.Path(check.work, f"{name}.gguf"))) if reference else None
    same, apart_most, less_f32, less = True, 0.0, 0.0, {}
    print(f"{name:9}{'document':13}{'tokens':>6}{'ours':>10}{'llama.cpp':>10}{'less':>10}"
          + (f"   F32: less; {reference.name}: mean, largest of a token" if reference else ""), flush=True)
    for number, (title, text) in enumerate(documents()):
        ids = theirs.encode(text)
        same &= list(ids) == list(ours.tokenize(text))
        ids = ids[:TOKENS]
        a, b = np.asarray(ours.loss(ids), np.float64), theirs.loss(ids)
        c, d = (reference.loss(ids), unrounded.loss(ids)) if number < REFERENCES else (None, None)
        for length in (256 << k for k in range(32) if 256 << k <= len(ids)):
            mean = a[:length].mean(), b[:length].mean()
            less.setdefault(length, []).append(mean[0] - mean[1])
            line = f"{name:9}{title:13}{length:6}{mean[0]:10.5f}{mean[1]:10.5f}{mean[0] - mean[1]:+10.5f}"
            if c is not None:
                apart = np.abs(a[:length] - c[:length])
                apart_most = max(apart_most, apart.max())
                less_f32 = max(less_f32, abs(mean[0] - d[:length].mean()))
                line += f"   {mean[0] - d[:length].mean():+.5f}   {apart.mean():.1e} {apart.max():.1e}"
            print(line, flush=True)
    check.report(f"{name}: ids", same, "as llama.cpp's, 8 documents")
    for length, all_of in less.items():
        check.report(f"{name}: {length} tokens beside llama.cpp", abs(np.mean(all_of)) <= beside_llama,
                     f"{np.mean(all_of):+.5f} nats per token over {len(all_of)} documents "
                     f"(bound {beside_llama:g}), a document at most {np.abs(all_of).max():.5f}")
    if reference is not None:
        check.report(f"{name}: beside llama.cpp with F32 weights", less_f32 <= beside_llama_f32,
                     f"a document at most {less_f32:.1e} nats per token (bound {beside_llama_f32:g})")
        check.report(f"{name}: beside {reference.name}", apart_most <= beside_reference,
                     f"a token at most {apart_most:.1e} nats (bound {beside_reference:g})")


if __name__ == "__main__":
    wanted = os.environ.get("LONGSHOT_CASES", ",".join(CASES)).split(",")
    for name in wanted:
        if not list((MODELS / name).glob("*.gguf")):
            subprocess.run([ROOT / "script" / "get-model", name], check=True)
    check.each({name: CASES[name] for name in wanted}, one)
