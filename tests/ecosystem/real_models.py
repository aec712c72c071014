"""Real models from packages: ids and losses beside llama.cpp on the same file; beside our own f64
kernels with the weights that the file's blocks stand for, token by token; and with these weights
written out in f32, beside transformers and llama.cpp. A table by document and length: the mean loss
of its first 256 to 8,192 tokens.

LONGSHOT_MODELS names the folder of the models. LONGSHOT_DOCUMENTS names a folder with text files of
40 kB and more, the first eight of which are read; without it they are made from the system's manual
pages of Perl. LONGSHOT_TOKENS cuts each, LONGSHOT_REFERENCES is how many are held against all
but llama.cpp too, LONGSHOT_CASES which models are tried (smollm2,gemma3). LONGSHOT_THREADS: 0 means all."""

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
EXACT = 1024  # tokens of a document that are computed in f64 too, which is slow
# name: bound on the mean over documents beside llama.cpp, whose products round activations to 8 bits
# (a single document of 256 tokens may be further off); on a document's mean beside llama.cpp with the
# same weights in an F32 file, where it rounds no more than its cache of keys and values to 16 bits; on
# each token beside our f64, and on the mean over a document's tokens beside transformers in f32, whose
# rounding is as large as ours
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


class Transformers:
    """Losses by transformers in f32, the last step in f64, with the weights of an exported folder."""

    def __init__(self, gguf, folder):
        import torch
        from transformers import AutoModelForCausalLM
        shutil.rmtree(folder, ignore_errors=True)
        check.longshot("export", str(gguf), f"out={folder}")
        self.torch = torch
        if THREADS:
            torch.set_num_threads(THREADS)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def loss(self, ids):
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


class References:
    """What a document is held against beside llama.cpp on the file itself."""

    def __init__(self, name, gguf):
        self.exact = longshot.open(gguf, dtype="f64", threads=THREADS)
        self.public = Transformers(gguf, pathlib.Path(check.work, f"{name}.hf"))
        self.unrounded = LlamaCpp(in_f32(gguf, pathlib.Path(check.work, f"{name}.gguf")))
        self.most = {"our f64": 0.0, "transformers f32": 0.0, "llama.cpp F32": 0.0}

    def read(self, ids):
        self.f64 = np.asarray(self.exact.loss(ids[:EXACT]), np.float64)
        self.theirs, self.f32 = self.public.loss(ids), self.unrounded.loss(ids)

    def beside(self, losses):
        """A line about these losses, the first of the document."""
        count = len(losses)
        exact = np.abs(losses[:EXACT - 1] - self.f64[:count]).max()
        public = np.abs(losses - self.theirs[:count]).mean()
        unrounded = abs(losses.mean() - self.f32[:count].mean())
        for name, apart in zip(self.most, (exact, public, unrounded)):
            self.most[name] = max(self.most[name], apart)
        return f"{exact:12.1e}{public:12.1e}{unrounded:12.1e}"

    def report(self, name, beside_f32, beside_exact):
        for other, bound, what in (("our f64", beside_exact, "a token"), ("transformers f32", beside_exact, "a mean"),
                                   ("llama.cpp F32", beside_f32, "a mean")):
            check.report(f"{name}: beside {other}", self.most[other] <= bound,
                         f"{what} at most {self.most[other]:.1e} nats (bound {bound:g})")


def one(name, bounds):
    beside_llama, beside_f32, beside_exact = bounds
    (gguf,) = (MODELS / name).glob("*.gguf")
    ours, theirs = longshot.open(gguf, dtype="f32", threads=THREADS), LlamaCpp(gguf)
    references = References(name, gguf) if REFERENCES > 0 else None
    same, less = True, {}
    print(f"{name:9}{'document':13}{'tokens':>6}{'ours':>10}{'llama.cpp':>10}{'less':>10}"
          + (f"{'our f64':>12}{'transf. f32':>12}{'llama F32':>12}" if references else ""), flush=True)
    for number, (title, text) in enumerate(documents()):
        ids = theirs.encode(text)
        same &= list(ids) == list(ours.tokenize(text))
        ids = ids[:TOKENS]
        a, b = np.asarray(ours.loss(ids), np.float64), theirs.loss(ids)
        if number < REFERENCES:
            references.read(ids)
        for length in (256 << k for k in range(32) if 256 << k <= len(ids)):
            mean = a[:length].mean(), b[:length].mean()
            less.setdefault(length, []).append(mean[0] - mean[1])
            print(f"{name:9}{title:13}{length:6}{mean[0]:10.5f}{mean[1]:10.5f}{mean[0] - mean[1]:+10.5f}"
                  + (references.beside(a[:length]) if number < REFERENCES else ""), flush=True)
    check.report(f"{name}: ids", same, "as llama.cpp's, 8 documents")
    for length, all_of in less.items():
        check.report(f"{name}: {length} tokens beside llama.cpp", abs(np.mean(all_of)) <= beside_llama,
                     f"{np.mean(all_of):+.5f} nats per token over {len(all_of)} documents "
                     f"(bound {beside_llama:g}), a document at most {np.abs(all_of).max():.5f}")
    if references:
        references.report(name, beside_f32, beside_exact)


if __name__ == "__main__":
    wanted = os.environ.get("LONGSHOT_CASES", ",".join(CASES)).split(",")
    for name in wanted:
        if not list((MODELS / name).glob("*.gguf")):
            subprocess.run([ROOT / "script" / "get-model", name], check=True)
    check.each({name: CASES[name] for name in wanted}, one)
