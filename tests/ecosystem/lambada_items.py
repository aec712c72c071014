"""LAMBADA, passage by passage: log-likelihoods and greedy flags are those of lm-evaluation-harness
(`hf` backend) for the same folder. LONGSHOT_LAMBADA names a file with more passages, of which the
first 100 are compared, LONGSHOT_LAMBADA_MODEL one more folder."""

import contextlib
import json
import os

import datasets
import lm_eval
import torch
from lm_eval.models.huggingface import HFLM
from transformers import AutoModelForCausalLM, AutoTokenizer

import check

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "checkpoints")
TOLERANCE = 1e-4
LAST = ["sign", "Harlin", "don't.", "\"yes\"", "naïve", "東京", "end\nand", "12,345", "x", "angel"]
TASK = {
    "task": "longshot_lambada",
    "dataset_path": "json",
    "output_type": "loglikelihood",
    "test_split": "test",
    "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}",
    "doc_to_target": "{{' '+text.split(' ')[-1]}}",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}


def passages():
    """Short ones, some longer than the window, blanks of all kinds before the last word."""
    texts = []
    for i in range(40):
        before = " ".join(check.WORDS.split(" ")[: 1 + i % 15] * (1 + (i % 4 == 3) * 6))
        gap = ["", " ", "\n", "\t", "\u3000"][i % 5]
        texts.append(f"{before} {i}{gap} {LAST[i % len(LAST)]}")
    path = os.environ.get("LONGSHOT_LAMBADA")
    if path:
        with open(path) as file:
            texts += [json.loads(line)["text"] for line, _ in zip(file, range(100))]
    return texts


@contextlib.contextmanager
def in_double():
    """Where transformers computes in float32 whatever the model's type, as angles of rotations, it
    computes in float64."""
    narrow, to_float = torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    yield
    torch.float = torch.float32 = narrow
    torch.Tensor.float = to_float
    torch.set_default_dtype(narrow)


def model_of(folder, wide):
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if not wide:
        return read
    weights = {key: value.double() for key, value in read.state_dict().items()}
    with in_double():
        read.config.dtype = torch.float64
        model = type(read)._from_config(read.config).double()
        model.load_state_dict(weights)
        model.tie_weights()
    return model


def theirs(folder, path, wide):
    """(log-likelihood, greedy) of each passage, and the window."""
    model = HFLM(pretrained=model_of(folder, wide), batch_size=1,
                 tokenizer=AutoTokenizer.from_pretrained(folder))
    task = dict(TASK, dataset_kwargs={"data_files": {"test": path}})
    with in_double() if wide else contextlib.nullcontext():
        found = lm_eval.simple_evaluate(model=model, tasks=[task], log_samples=True,
                                        bootstrap_iters=0)
    samples = sorted(found["samples"]["longshot_lambada"], key=lambda s: s["doc_id"])
    return [sample["filtered_resps"][0] for sample in samples], model.max_length


def ours(name, folder, path, window, dtype):
    out = f"{check.work}/lambada-{name}-{dtype}"
    check.longshot("eval", folder, "suite=lambada", f"suite.path={path}", f"suite.window={window}",
                   f"suite.out={out}", f"dtype={dtype}")
    with open(f"{out}/samples.jsonl") as file:
        records = [json.loads(line) for line in file][1:]
    by_id = {int(record["id"]): record["metrics"] for record in records}
    return [(by_id[i]["logprob"], by_id[i]["score"] == 1) for i in range(len(by_id))]


def one(name, folder):
    path = f"{check.work}/lambada.jsonl"
    texts = passages()
    with open(path, "w") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    exact, window = theirs(folder, path, True)
    rounded, _ = theirs(folder, path, False)
    apart = max(abs(float(a[0]) - float(b[0])) for a, b in zip(exact, rounded))
    # both of ours against theirs in double: sums of 100 nats in float32 lose up to 1e-4 there
    for dtype, flagged in ("f64", exact), ("f32", rounded):
        got = ours(name, folder, path, window, dtype)
        if not len(got) == len(exact) == len(rounded) == len(texts):
            raise RuntimeError(f"{len(got)} passages, {len(exact)} of theirs, {len(texts)} in all")
        worst = max(abs(a[0] - float(b[0])) for a, b in zip(got, exact))
        flags = sum(a[1] != bool(b[1]) for a, b in zip(got, flagged))
        longest = max(abs(a[0]) for a in got)
        check.report(f"{name} {dtype}", worst <= TOLERANCE and flags == 0,
                     f"{len(got)} passages, window {window}: log-likelihoods (to -{longest:.0f}) "
                     f"differ by {worst:.2g} at most, theirs in float32 by {apart:.2g}; "
                     f"{flags} greedy flags differ ({sum(a[1] for a in got)} greedy)")


if __name__ == "__main__":
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    folders = {name: os.path.abspath(f"{GOLDEN}/{name}") for name in ("gpt2", "llama-llama3-sharded")}
    more = os.environ.get("LONGSHOT_LAMBADA_MODEL")
    if more:
        folders[os.path.basename(more.rstrip("/"))] = more
    check.each(folders, one)
