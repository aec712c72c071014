"""Small tokenizers, one component or border case each, as Hugging Face's `tokenizers` runs them.

    python3 tokenizer_edges.py FILE          writes FILE (tests/golden/tokenizers/edges.json)
    python3 tokenizer_edges.py --check FILE  runs the library again and compares

Each entry has a tokenizer.json, texts with their ids (without and with the template), and ids with
their text (with and without special tokens). Written with tokenizers 0.23.3.
"""
import json
import sys

from tokenizers import Tokenizer

UNKNOWN = "\u2047"
SPACES = "\u0085\u00a0\u1680\u2000\u200a\u200b\u2028\u2029\u202f\u205f\u3000\t\x0b\x0c\r\n"
CHINESE = [0x3400, 0x4DBF, 0x4DC0, 0x4E00, 0x9FFF, 0xA000, 0x20000, 0x2A6DF, 0x2A6E0, 0x2A700, 0x2B73F, 0x2B740,
           0x2B81F, 0x2B820, 0x2B91F, 0x2B920, 0x2CEAF, 0x2CEB0, 0xF900, 0xFAFF, 0xFB00, 0x2F800, 0x2FA1F, 0x2FA20]
NMT = [0x1, 0x8, 0x9, 0xA, 0xB, 0xC, 0xD, 0xE, 0x1F, 0x20, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0x1680, 0x200A, 0x200B,
       0x200F, 0x2010, 0x2028, 0x2029, 0x202A, 0x2581, 0xFEFF, 0xFFFD]


def beside(points):
    return "".join("a" + chr(c) + "b " for c in points)


def document(normalizer=None, pre=None, model=None, decoder=None, post=None, added=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def wordpiece(words, **more):
    vocab = {UNKNOWN: 0}
    for word in words:
        vocab.setdefault(word, len(vocab))
    return {"type": "WordPiece", "unk_token": UNKNOWN, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 200, "vocab": vocab, **more}


def cut(normalizer, pre, texts):
    """A vocabulary of exactly the pieces the texts are cut into shows where they are cut."""
    probe = Tokenizer.from_str(json.dumps(document(normalizer, pre, wordpiece([]))))
    words = []
    for text in texts:
        text = probe.normalizer.normalize_str(text) if normalizer else text
        if pre:
            words += [piece for piece, _ in probe.pre_tokenizer.pre_tokenize_str(text)]
        elif text:
            words.append(text)
    return {"tokenizer": document(normalizer, pre, wordpiece(words)), "texts": texts}


def added(identity, content, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": identity, "content": content, **base, **flags}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def steps(*list_):
    return {"type": "Sequence", "pretokenizers": list(list_)}


BEHAVIORS = ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
REGEX = ["a*", "\\W+", "\\D", "\\P{L}+", "\\x41", "\\x{1F600}", "\\u0041", "[\\t\\f\\a\\e]+",
         "\\Aab", "b\\z", "b\\Z", "\\v+", "[\\x41-\\x43]+", "a\\-b|\\.", "[a[bc]]+", "(?i:AB)|(?=b)", "\\s*$",
         "[^a]", "[\\]a]+", "\\p{Lu}", "x*|b"]
WORDS = "ab-.AB\u00e9 1\u0663\U0001F600\t\x0bcab \x0c]ab"


def cuts():
    for left in (True, False):
        for right in (True, False):
            yield cut({"type": "Strip", "strip_left": left, "strip_right": right}, None, [" a b ", "  ", "", SPACES + "x"])
    yield cut({"type": "Prepend", "prepend": "_"}, None, ["", "a", " a"])
    for clean, chinese, accents, lower in [(1, 1, None, 1), (0, 1, None, 0), (1, 0, True, 0), (0, 0, False, 1), (1, 1, False, 0),
                                           (1, 1, True, 1)]:
        bert = {"type": "BertNormalizer", "clean_text": bool(clean), "handle_chinese_chars": bool(chinese),
                "strip_accents": accents, "lowercase": bool(lower)}
        yield cut(bert, {"type": "BertPreTokenizer"}, [beside(CHINESE), "\u00c9t\u00c9 \u0130x \x01a\x7fb\ufffdcd" + SPACES,
                                                       "it's [ok]\u2014{no}~ `a^b|c_d", ""])
    yield cut({"type": "Nmt"}, {"type": "WhitespaceSplit"}, [beside(NMT)])
    for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield cut({"type": kind}, None, ["", "\u0130\u00c9e\u0301 \uac00\u1100\u1161 \ufb01\u00bd\u2126", "\U0001D15E\u0344\u0958"])
    for pattern in ({"String": " "}, {"Regex": "a*"}, {"Regex": "[0-9]+"}, {"String": "ab"}):
        yield cut({"type": "Replace", "pattern": pattern, "content": "_"}, None, ["ab a1b22 ", "\u00e9aa\u00e9", "", "b"])
    yield cut(None, {"type": "WhitespaceSplit"}, ["".join("a" + c for c in SPACES) + "a"])
    yield cut(None, {"type": "Whitespace"}, ["a_b-c  \u200cd\u200de \u24b6\u24e9\u24ea\U0001F130\U0001F149\U0001F150"
                                             "\U0001F169\U0001F170\U0001F189\U0001F18A\u0301\u203f\u00b2"])
    for behavior in BEHAVIORS:
        for invert in (False, True):
            for pattern in ({"String": "-"}, {"Regex": "-*"}):
                yield cut(None, split(pattern, behavior, invert), ["the-final--of-", "-", "--", "\u00e9-\u00e9", "x", ""])
        yield cut(None, {"type": "Punctuation", "behavior": behavior}, ["a,b..c!", "\u2014\u00ab{|}~`$+<"])
    yield cut(None, {"type": "Punctuation"}, ["a,b..c!"])
    for single in (True, False):
        yield cut(None, {"type": "Digits", "individual_digits": single}, ["a12b\u0663\u00bd\u2160 3", "12"])
    for regex in REGEX:
        yield cut(None, split({"Regex": regex}, "Isolated"), [WORDS, "ab", "\u00e9", ""])
    for scheme in ("always", "first", "never"):
        for whole in (True, False):
            meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": whole}
            yield cut(None, meta, ["a b", " a  b ", "\u2581a", "", " "])
            yield cut(None, steps({"type": "Digits", "individual_digits": False}, meta), ["a1 b", "1 a"])


def byte_letters():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    letters, next_ = {b: chr(b) for b in plain}, 256
    for b in range(256):
        if b not in letters:
            letters[b], next_ = chr(next_), next_ + 1
    return [letters[b] for b in range(256)]


def byte_level():
    letters = byte_letters()
    vocab = {letter: i for i, letter in enumerate(letters)}
    merges = []
    for left, right in [("a", "b"), ("\u0120", "a"), ("\u0120a", "b"), ("1", "2"), ("\u0120", "\u0120"), ("b", "1")]:
        vocab[left + right] = len(vocab)
        merges.append([left, right])
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges}
    decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    texts = ["ab ab1 12", " ab", "", "\u00e9\U0001F600  ab", "12 3"]
    for prefix in (True, False):
        for regex in (True, False):
            level = {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}
            digits = {"type": "Digits", "individual_digits": True}
            dash = split({"String": "b"}, "Isolated")
            for pre in (level, steps(digits, level), steps(level, digits), steps(level, dash)):
                yield {"tokenizer": document(None, pre, model, decoder), "texts": texts}
    pairs = dict(model, merges=[" ".join(pair) for pair in merges], ignore_merges=True, dropout=0.0)
    yield {"tokenizer": document(None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                                        "use_regex": True}, pairs, decoder), "texts": texts}


def byte_pieces():
    return ["<0x%02X>" % b for b in range(256)]


def models():
    fallback = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    words = ["<unk>"] + byte_pieces() + ["a", "b", "ab", "\u2581", "\u2581a", "abab", "\u00e9"]
    merges = [["a", "b"], ["\u2581", "a"], ["ab", "ab"]]
    meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
    texts = ["ab ababab", "xyz a", "\u00e9\u4e2dx", "", "x", "axxbx\u4e2d\u4e2da"]
    vocab = {word: i for i, word in enumerate(words)}
    few = {word: i for i, word in enumerate(w for w in words if not w.startswith("<0x"))}
    for fuse in (True, False):
        for bytes_ in (True, False):
            for unknown in ("<unk>", None):
                for known in (vocab, few):
                    for ignore in (False, True):
                        model = dict(fallback, fuse_unk=fuse, byte_fallback=bytes_, unk_token=unknown, vocab=known,
                                     merges=merges, ignore_merges=ignore)
                        yield {"tokenizer": document(None, meta, model), "texts": texts}
                        yield {"tokenizer": document(None, {"type": "WhitespaceSplit"}, model), "texts": texts[:3]}
    scores = [["<unk>", 0.0]] + [[p, -9.0] for p in byte_pieces()] + [["a", -2.0], ["b", -2.5], ["ab", -3.0], ["\u2581", -1.0],
                                                                    ["\u2581ab", -4.0], ["xx", -5.0]]
    for bytes_ in (True, False):
        for known in (scores, [s for s in scores if not s[0].startswith("<0x")], scores[:100]):
            model = {"type": "Unigram", "unk_id": 0, "vocab": known, "byte_fallback": bytes_}
            yield {"tokenizer": document(None, meta, model), "texts": texts}
    pieces = wordpiece(["a", "##b", "##ab", "ab", "\u00e9", "##\u00e9"], max_input_chars_per_word=4)
    yield {"tokenizer": document(None, {"type": "WhitespaceSplit"}, pieces), "texts": ["ab aab abab ababa \u00e9\u00e9 x ax", ""]}


def specials():
    tokens = [added(3, "<s>", special=True), added(4, "</s>", special=True), added(5, "[L]", lstrip=True),
              added(6, "[R]", rstrip=True), added(7, "[W]", single_word=True), added(8, "[LR]", lstrip=True, rstrip=True),
              added(9, "xy", normalized=True), added(10, "[S]", single_word=True, lstrip=True, rstrip=True, special=True),
              added(11, "Q Q", normalized=True)]
    model = wordpiece(["a", "b"])
    texts = ["a [L] b", "a  [R]  b", "a[W]b a [W] b [W]", "[W]", "a\u00a0[LR]\u3000b[LR][LR] [LR]", "xyxy XY a", "<s>a</s> b",
             "\u00e9[W]\u00e9 [S] _[S]_ [S]a", "[L]", "q q Q Q", "[L] [R] [L]", "a\u00e9 [L]\u00e9", ""]
    posts = [None,
             {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                       {"Sequence": {"id": "A", "type_id": 0}}],
              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
              "special_tokens": {"<s>": {"id": "<s>", "ids": [3, 4], "tokens": ["<s>", "</s>"]}}},
             {"type": "BertProcessing", "sep": ["</s>", 4], "cls": ["<s>", 3]},
             {"type": "RobertaProcessing", "sep": ["</s>", 4], "cls": ["<s>", 3], "trim_offsets": True,
              "add_prefix_space": False},
             {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}]
    posts.append({"type": "Sequence", "processors": [posts[4], posts[1]]})
    for normalizer in (None, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "_"}):
        for post in posts if normalizer is None else posts[:1]:
            yield {"tokenizer": document(normalizer, {"type": "WhitespaceSplit"}, model, None, post, tokens), "texts": texts,
                   "ids": [[3, 1, 9, 4, 2], [5, 6], []]}


def decoders():
    words = ["a", "b", "\u2581a", "\u2581", "##b", "ab</w>", "</w>", " ", ".", "do not", "n't", "<0xE4>", "<0xb8>", "<0xAD>",
             "<0xE4", "<0xG0>", "<0x0G>", "<0x0:>", "<0x61?", "<0x+1>", "<0x:1>", "<0x`1>", "\u00e9", "aa", " a ", "bbb", "<0xff>",
             "<0x@1>", "<0x/1>", "<0x+G>"]
    prefixes = [{"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "WordPiece", "prefix": "##", "cleanup": False},
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": True},
                {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": "a", "start": 1, "stop": 1}, {"type": "Strip", "content": " ", "start": 0, "stop": 2},
                {"type": "Strip", "content": "b", "start": 2, "stop": 0},
                {"type": "Replace", "pattern": {"String": "a"}, "content": "_"},
                {"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "+"}]
    fused = [{"type": "Sequence", "decoders": [{"type": "Fuse"}, p]} for p in prefixes]
    fused += [{"type": "Sequence", "decoders": [{"type": "ByteFallback"}, p]} for p in prefixes]
    fused.append({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                                                   {"type": "ByteFallback"}, {"type": "Fuse"},
                                                   {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
    count = len(words) + 1
    lists = [[i] for i in range(1, count)] + [list(range(1, count)), [3, 2, 3, 4], [12, 13, 14], [12, 13], [12, 1, 27, 13],
                                              [24, 25, 24], [8, 8], [10, 11, 9, 9], [], [4, 4], [0, 1, 0], [2, 26, 2]]
    for decoder in prefixes + fused:
        yield {"tokenizer": document(None, {"type": "WhitespaceSplit"}, wordpiece(words), decoder), "texts": [], "ids": lists}


def run(entry):
    tokenizer = Tokenizer.from_str(json.dumps(entry["tokenizer"]))
    out = {"tokenizer": entry["tokenizer"], "texts": [], "ids": []}
    for text in entry["texts"]:
        out["texts"].append([text, tokenizer.encode(text, add_special_tokens=False).ids, tokenizer.encode(text).ids])
    lists = entry.get("ids") or [ids for _, ids, _ in out["texts"]]
    for ids in lists:
        try:
            out["ids"].append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids)])
        except BaseException as refusal:  # a panic of the library: Strip on a token that is too short
            print("no answer for", ids, str(refusal)[:60], file=sys.stderr)
    return out


def main():
    check = sys.argv[1] == "--check"
    path = sys.argv[2 if check else 1]
    if check:
        stored = json.load(open(path))
        made = [run({"tokenizer": e["tokenizer"], "texts": [t[0] for t in e["texts"]], "ids": [i[0] for i in e["ids"]]})
                for e in stored]
        differ = sum(a != b for a, b in zip(stored, made))
        print("%d of %d differ" % (differ, len(stored)))
        sys.exit(differ > 0)
    made = []
    for source in (cuts, byte_level, models, specials, decoders):
        for entry in source():
            try:
                made.append(run(entry))
            except BaseException as refusal:  # the library's own panics are no Exceptions
                print("refused by the library:", str(refusal)[:100], json.dumps(entry["tokenizer"])[:10], file=sys.stderr)
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in made) + "\n]\n")


main()
