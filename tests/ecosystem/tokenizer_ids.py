"""Tokenizers of longshot, exported: the library `tokenizers` and transformers give the same ids and
the same text, and longshot reads them back."""

import json
import os
import shutil

from tokenizers import Tokenizer
from transformers import AutoTokenizer

import check

TEXTS = [
    check.WORDS,
    "",
    " two  spaces\tand\n\nlines ",
    "naïve café — 東京 😀 \u00a0x",
    "it's <|endoftext|> here",
    "0123456789 " * 7,
]
SMALL = ["model.layers=1", "model.width=32", "mixer.heads=4", "model.length=16", "train.length=16",
         "train.batch=1", "train.steps=1", "model.position=learned", "position.length=16",
         "mixer.bias=true"]
CASES = {"byte": ["data.tokenizer=byte"],
         "bpe": ["data.tokenizer=train", "data.vocabulary=400"]}


def ids_of(path, text, *words):
    said = check.longshot("tokenize", path, f"text={text}", *words, "--json")
    return json.loads(said)["ids"]


def one(name, tokenizer):
    run, folder = f"{check.work}/tokens-{name}", f"{check.work}/tokens-{name}.hf"
    check.longshot("train", *SMALL, *tokenizer, f"data.corpus={check.corpus()}",
                   f"cache={check.work}/cache", f"out={run}")
    shutil.rmtree(folder, ignore_errors=True)
    check.longshot("export", run, f"out={folder}")
    theirs = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    fast = AutoTokenizer.from_pretrained(folder)
    count = 0
    for text in TEXTS + [open(check.corpus()).read(20000)]:
        ours = ids_of(run, text)
        count += len(ours)
        if theirs.encode(text).ids != ours or fast(text)["input_ids"] != ours:
            raise RuntimeError(f"other ids for {text[:60]!r}")
        if ids_of(folder, text) != ours:
            raise RuntimeError(f"other ids after it was opened again for {text[:60]!r}")
        if fast.decode(ours) != text:
            raise RuntimeError(f"another text for {text[:60]!r}")
    check.report(name, True, f"{count} ids equal, text equal")


check.each(CASES, one)
