"""Scores of attention heads from the patterns that transformers gives (eager attention, float64).

    python head_scores.py LONGSHOT CHECKPOINTS OUT.json

The suite `heads` draws the tokens: it is run on each folder, and its samples tell them. The same
tokens go through transformers; scores are sums over its whole patterns, as docs/suites.md defines
them. Copying comes from the weights."""

import json
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers

import common

LENGTHS = {"gpt2": [48], "llama-llama3-sharded": [101, 200, 521]}
TEXT = "".join(f"line {i} of a text, no {i * i % 17} like the one before\n" for i in range(400))
SAMPLES, REPEATS, COPIED = 2, 4, 25


def samples_of(program, folder, lengths, work):
    """The model's records of the suite: tokens repeated and of the text, by length."""
    with open(f"{work}/text.txt", "w") as file:
        file.write(TEXT)
    subprocess.run([program, "eval", folder, "suite=heads", "dtype=f64", f"suite.samples={SAMPLES}",
                    f"suite.lengths={','.join(map(str, lengths))}", f"suite.path={work}/text.txt",
                    f"suite.out={work}/{lengths[0]}"], check=True, capture_output=True)
    lines = open(f"{work}/{lengths[0]}/samples.jsonl").read().splitlines()[1:]
    return [record for record in map(json.loads, lines) if "repeated" in record]


def scores_of(A, period):
    """Of one pattern [T, T]."""
    T = len(A)
    stripe = lambda d: float(np.mean([A[q, q - d] for q in range(d, T)]))  # noqa: E731
    sums, pairs = 0.0, 0
    for q in range(1 + period, T):
        for k in range(q - period + 1, 1, -period):
            sums, pairs = sums + A[q, k], pairs + 1
    entropy = [-(A[q, : q + 1][A[q, : q + 1] > 0] * np.log(A[q, : q + 1][A[q, : q + 1] > 0])).sum()
               for q in range(1, T)]
    keys = np.arange(T)
    return {
        "prefix_matching": sums / (T - 1 - period),
        "prefix_matching_pair": sums / pairs,
        "induction": stripe(period - 1),
        "duplicate_token": stripe(period),
        "previous_token": stripe(1),
        "first_token": float(A[1:, 0].mean()),
        "first_four_tokens": float(A[4:, :4].sum(1).mean()),
        "entropy": float(np.mean(entropy)),
        "relative_entropy": float(np.mean([e / np.log(q + 2) for q, e in enumerate(entropy)])),
        "distance": float(np.mean([(A[q] * (q - keys)).sum() for q in range(1, T)])),
    }


def circuit(model, layer, head):
    """Of a head: values [width, D] and output [D, width]."""
    config = model.config
    heads = config.num_attention_heads
    if model.config.model_type == "gpt2":
        attention = model.transformer.h[layer].attn
        D, width = config.n_embd, config.n_embd // heads
        at = slice(head * width, (head + 1) * width)
        return (attention.c_attn.weight[:, 2 * D:].T[at], attention.c_proj.weight.T[:, at])
    attention = model.model.layers[layer].self_attn
    width = attention.head_dim
    group = head // (heads // config.num_key_value_heads)
    return (attention.v_proj.weight[group * width:(group + 1) * width],
            attention.o_proj.weight[:, head * width:(head + 1) * width])


def copying(model, layer, head, tokens):
    values, output = circuit(model, layer, head)
    embedding = model.get_input_embeddings().weight[tokens]
    logits = embedding @ values.T @ output.T @ model.get_output_embeddings().weight[tokens].T
    raised = torch.relu(logits - logits.mean(1, keepdim=True))
    return float(2 * (raised.diagonal() / raised.sum(1)).mean() - 1)


def losses(logits, tokens):
    return torch.nn.functional.cross_entropy(logits[:-1], tokens[1:], reduction="none").numpy()


@torch.no_grad()
def look_at(model, record):
    """All heads of one sample, and the whole model."""
    repeated, text = torch.tensor(record["repeated"]), torch.tensor(record["text"])
    period = (len(repeated) - 1) // REPEATS
    seen = {name: model(ids[None], output_attentions=True, use_cache=False)
            for name, ids in (("", repeated), ("text_", text))}
    out = []
    for layer in range(model.config.num_hidden_layers):
        for head in range(model.config.num_attention_heads):
            scores = scores_of(seen[""].attentions[layer][0, head].numpy(), period)
            scores["copying"] = copying(model, layer, head, repeated[1:1 + min(COPIED, period)])
            of_text = scores_of(seen["text_"].attentions[layer][0, head].numpy(), period)
            for name in list(of_text)[4:]:
                scores["text_" + name] = of_text[name]
            out.append({"layer": layer, "head": head, "scores": scores})
    loss = losses(seen[""].logits[0], repeated)
    gain = loss[:period].mean() - loss[period:].mean()
    loss, far = losses(seen["text_"].logits[0], text), int(0.95 * len(text))
    whole = {"repeat_gain": gain}
    if len(text) >= 500:
        whole["in_context_learning"] = loss[500 - 2] - loss[50 - 2]
    if far > 50:
        whole["in_context_learning_far"] = loss[far - 2] - loss[50 - 2]
    return {"id": record["id"], "length": record["cell"]["length"], "repeated": record["repeated"],
            "text": record["text"], "model": whole, "heads": out}


def main(program, checkpoints, out):
    found = {"text": TEXT, "samples": SAMPLES, "transformers": transformers.__version__,
             "folders": {}}
    read = {name: transformers.AutoModelForCausalLM.from_pretrained(
        f"{checkpoints}/{name}", dtype=torch.float32) for name in LENGTHS}
    weights = {name: {key: value.double() for key, value in model.state_dict().items()}
               for name, model in read.items()}
    common.in_double()  # eager attention has its softmax and its angles in float32 otherwise
    for name, lengths in LENGTHS.items():
        config = read[name].config
        config.dtype = torch.float64
        model = type(read[name])._from_config(config, attn_implementation="eager").double().eval()
        model.load_state_dict(weights[name])
        model.tie_weights()
        with tempfile.TemporaryDirectory() as work:
            records = samples_of(program, f"{checkpoints}/{name}", lengths, work)
        found["folders"][name] = {"lengths": lengths,
                                  "samples": [look_at(model, record) for record in records]}
    with open(out, "w") as file:
        json.dump(found, file, separators=(",", ":"), default=float)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
