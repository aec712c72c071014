"""Real models from packages: ids and losses beside llama.cpp on the same file, beside our own f64
kernels and transformers in f64 with the weights that the file's blocks stand for. A table by document
and length: the mean loss of its first 256 to 8,192 tokens.

llama.cpp's products round activations to 8 bits where weights are quantised. With BLAS they do not: a
package llama_cpp that was built with it (docs/checkpoints.md says how) is held to every document.
Without it xllamacpp is held to the mean over documents.

LONGSHOT_MODELS names the folder of the models. LONGSHOT_DOCUMENTS names a folder with text files of
40 kB and more, the first eight of which are read; without it they are made from the system's manual
pages of Perl. LONGSHOT_TOKENS cuts each. LONGSHOT_REFERENCES is how many are held against f64 too,
LONGSHOT_EXACT how many tokens of these our f64 kernels compute. LONGSHOT_LOSSES names a file of
make/f64_losses.py, which then need not be computed. LONGSHOT_CASES says which models are tried
(smollm2,gemma3), LONGSHOT_LLAMA which llama.cpp (llama_cpp, xllamacpp). LONGSHOT_THREADS: 0 means
all."""

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
EXACT = int(os.environ.get("LONGSHOT_EXACT", 1024))
FIRST = 1024  # tokens of a document, each of which is held to the bound beside f64
CHUNK = 512
# name: bounds on the mean over documents beside llama.cpp that rounds (of Gemma 3 nothing is asked
# there, which rounding moves by more than that), on the mean of each document beside one that does not
# (it takes Gemma's GELU from a table in 16 bits), and beside f64
CASES = {"smollm2": (2e-2, 1e-4, 1e-4), "gemma3": (None, 1e-3, 1e-4)}
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
    """llama.cpp's C interface: ids, and the loss of each token. This one is of the package xllamacpp,
    whose products round activations."""

    name, exact = "xllamacpp", False

    class Params(ctypes.Structure):  # larger than its parameter structs, which are passed by value
        _fields_ = [("words", ctypes.c_uint32 * 256)]

    class Batch(ctypes.Structure):
        _fields_ = [("count", ctypes.c_int32), ("token", ctypes.c_void_p), ("embd", ctypes.c_void_p),
                    ("position", ctypes.c_void_p), ("sequences", ctypes.c_void_p),
                    ("sequence", ctypes.c_void_p), ("logits", ctypes.c_void_p)]

    def __init__(self, path):
        self.threads = THREADS or len(os.sched_getaffinity(0))
        self.so = ctypes.CDLL(str(self.library()))
        pointer = ctypes.c_void_p
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda *_: None)
        self.so.llama_log_set(self.quiet, None)
        self.so.llama_backend_init()
        settings = self.model_settings()
        self.model = self.call("llama_model_load_from_file", pointer, ctypes.c_char_p, type(settings))(
            str(path).encode(), settings)
        self.vocabulary = self.call("llama_model_get_vocab", pointer, pointer)(self.model)
        self.words = self.call("llama_vocab_n_tokens", ctypes.c_int32, pointer)(self.vocabulary)
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)

    def library(self):
        return folder_of("xllamacpp") / "xllamacpp.abi3.so"

    def model_settings(self):
        return self.call("llama_model_default_params", self.Params)()

    def context_settings(self, tokens):
        params = self.call("llama_context_default_params", self.Params)()
        if list(params.words[:3]) != [512, 2048, 512]:
            raise RuntimeError("llama.cpp's context parameters have another layout")
        params.words[0], params.words[1], params.words[2] = tokens + 8, CHUNK, CHUNK
        return params

    def call(self, name, result, *kinds):
        function = getattr(self.so, name)
        function.restype, function.argtypes = result, kinds
        return function

    def encode(self, text, special=False):
        """Ids without a token in front; with `special` what reads like a control token is one."""
        out = (ctypes.c_int32 * (len(text) + 16))()
        number, flag, pointer = ctypes.c_int32, ctypes.c_bool, ctypes.c_void_p
        count = self.call("llama_tokenize", number, pointer, ctypes.c_char_p, number, pointer, number,
                          flag, flag)(self.vocabulary, text, len(text), out, len(out), False, special)
        return np.array(out[:count], dtype=np.int32)

    def loss(self, ids):
        number, pointer = ctypes.c_int32, ctypes.c_void_p
        settings = self.context_settings(len(ids))
        context = self.call("llama_init_from_model", pointer, pointer, type(settings))(self.model, settings)
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


class LlamaCppF32(LlamaCpp):
    """The package llama_cpp, built with BLAS: 32 rows and more are multiplied in f32 by the weights
    that a file's blocks stand for. Keys and values are kept in f32 too."""

    name, exact = "llama_cpp with BLAS", True

    def library(self):
        import llama_cpp.llama_cpp as binding
        self.binding, libraries = binding, folder_of("llama_cpp") / "lib"
        if not list(libraries.glob("libggml-blas.*")):
            raise RuntimeError("llama_cpp was built without BLAS: docs/checkpoints.md says how to build it")
        return next(libraries.glob("libllama.*"))

    def model_settings(self):
        settings = self.call("llama_model_default_params", self.binding.llama_model_params)()
        settings.use_extra_bufts = False  # weights that are rearranged are multiplied elsewhere
        return settings

    def context_settings(self, tokens):
        settings = self.call("llama_context_default_params", self.binding.llama_context_params)()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = tokens + 8, CHUNK, CHUNK
        settings.type_k = settings.type_v = self.binding.GGML_TYPE_F32
        settings.flash_attn_type = self.binding.LLAMA_FLASH_ATTN_TYPE_DISABLED
        return settings


def folder_of(package):
    spec = importlib.util.find_spec(package)
    return pathlib.Path(spec.submodule_search_locations[0]) if spec else None


def llama_cpp(path):
    wanted = os.environ.get("LONGSHOT_LLAMA") or ("llama_cpp" if folder_of("llama_cpp") else "xllamacpp")
    return {"llama_cpp": LlamaCppF32, "xllamacpp": LlamaCpp}[wanted](path)


def row_loss(row, target):
    row = row.astype(np.float64)
    most = row.max()
    return most + np.log(np.exp(row - most).sum()) - row[target]


class Transformers:
    """Losses by transformers in f64 with the weights of an exported folder, or those of a file."""

    def __init__(self, name, gguf):
        self.known = np.load(os.environ["LONGSHOT_LOSSES"]) if "LONGSHOT_LOSSES" in os.environ else None
        if self.known is None:
            folder = pathlib.Path(check.work, f"{name}.hf")
            shutil.rmtree(folder, ignore_errors=True)
            check.longshot("export", str(gguf), f"out={folder}")
            sys.path.insert(0, str(ROOT / "tests" / "ecosystem" / "make"))
            from f64_losses import Exact
            self.model = Exact(folder, THREADS)

    def loss(self, title, ids):
        return self.model.loss(ids) if self.known is None else self.known[title][:len(ids) - 1]


class References:
    """What a document is held against beside llama.cpp, token by token."""

    def __init__(self, name, gguf):
        self.ours = longshot.open(gguf, dtype="f64", threads=THREADS) if EXACT > 1 else None
        self.public = Transformers(name, gguf)
        self.apart = {"our f64": [], "transformers f64": []}

    def read(self, title, ids):
        self.losses = {"transformers f64": self.public.loss(title, ids)}
        if self.ours:
            self.losses["our f64"] = np.asarray(self.ours.loss(ids[:EXACT]), np.float64)
        self.now = {}

    def beside(self, losses):
        """A line about these losses, the first of the document: the furthest token, and the mean."""
        for name, theirs in self.losses.items():
            count = min(len(losses), len(theirs))
            self.now[name] = losses[:count] - theirs[:count]
        return "".join(f"{np.abs(self.now[name]).max():12.1e}{self.now[name].mean():+10.1e}" if name in self.now
                       else " " * 22 for name in self.apart)

    def keep(self):
        for name, apart in self.now.items():
            self.apart[name].append(apart)

    def report(self, name, bound):
        """Each of a document's first tokens, all of its tokens but one in a thousand, and its mean to a tenth."""
        for other, apart in self.apart.items():
            if not apart:
                continue
            tokens, means = np.abs(np.concatenate(apart)), [abs(one.mean()) for one in apart]
            usual, first = np.quantile(tokens, 0.999), max(np.abs(one[:FIRST]).max() for one in apart)
            check.report(f"{name}: beside {other}", max(usual, first) <= bound and max(means) <= bound / 10,
                         f"each of a document's first {FIRST} tokens within {first:.1e} nats, 999 of 1,000 of all "
                         f"{len(tokens)} within {usual:.1e} (bound {bound:g}), the furthest {tokens.max():.1e}, "
                         f"a document's mean {max(means):.1e} (bound {bound / 10:g})")


def report_means(name, length, less, theirs, bounds):
    """The mean over documents, and where llama.cpp rounds nothing each document's."""
    most, mean = np.abs(less).max(), np.mean(less)
    found = f"{mean:+.6f} nats per token over {len(less)} documents, a document at most {most:.6f}"
    what, value, bound = ("a document", most, bounds[1]) if theirs.exact else ("the mean", abs(mean), bounds[0])
    title = f"{name}: {length} tokens beside {theirs.name}"
    if bound is None:
        print(f"       {title}: {found}", flush=True)
    else:
        check.report(title, value <= bound, f"{found} (bound on {what} {bound:g})")


def one(name, bounds):
    (gguf,) = (MODELS / name).glob("*.gguf")
    ours, theirs = longshot.open(gguf, dtype="f32", threads=THREADS), llama_cpp(gguf)
    references = References(name, gguf) if REFERENCES > 0 else None
    same, less = True, {}
    print(f"{name:9}{'document':13}{'tokens':>6}{'ours':>10}{'llama.cpp':>10}{'less':>11}"
          + (f"{'our f64':>12}{'mean':>10}{'transf. f64':>12}{'mean':>10}" if references else ""), flush=True)
    for number, (title, text) in enumerate(documents()):
        ids = np.asarray(ours.tokenize(text), np.int32)
        # llama.cpp takes what is called </s> for a control token where the file says user-defined (Gemma 3)
        same &= any(np.array_equal(ids, theirs.encode(text, special)) for special in (False, True))
        ids = ids[:TOKENS]
        a, b = np.asarray(ours.loss(ids), np.float64), theirs.loss(ids)
        if number < REFERENCES:
            references.read(title, ids)
        for length in (256 << k for k in range(32) if 256 << k <= len(ids)):
            mean = a[:length].mean(), b[:length].mean()
            less.setdefault(length, []).append(mean[0] - mean[1])
            print(f"{name:9}{title:13}{length:6}{mean[0]:10.5f}{mean[1]:10.5f}{mean[0] - mean[1]:+11.6f}"
                  + (references.beside(a[:length]) if number < REFERENCES else ""), flush=True)
        if number < REFERENCES:
            references.keep()
    check.report(f"{name}: ids", same, "as llama.cpp's, 8 documents")
    for length, all_of in less.items():
        report_means(name, length, all_of, theirs, bounds)
    if references:
        references.report(name, bounds[2])


if __name__ == "__main__":
    wanted = os.environ.get("LONGSHOT_CASES", ",".join(CASES)).split(",")
    for name in wanted:
        if not list((MODELS / name).glob("*.gguf")):
            subprocess.run([ROOT / "script" / "get-model", name], check=True)
    check.each({name: CASES[name] for name in wanted}, one)
