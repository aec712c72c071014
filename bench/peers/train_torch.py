"""PyTorch beside `longshot bench what=train`: the same decoder (6 x 384, 6 heads, RoPE, pre-norm,
GELU, tied head, bytes), AdamW with clipping, length 256, batch 16. Eager and compiled are both
measured; the faster one counts."""
import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

import peer

LAYERS, WIDTH, HEADS, VOCABULARY, BATCH, LENGTH = 6, 384, 6, 256, 16, 256


def rotary_tables():
    pairs = WIDTH // HEADS // 2
    frequency = 10000.0 ** (-torch.arange(pairs) / pairs)
    angle = torch.arange(LENGTH)[:, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cosine, sine):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cosine, sine).to(v.dtype), rotate(k, cosine, sine).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        cosine, sine = rotary_tables()
        self.register_buffer("cosine", cosine)
        self.register_buffer("sine", sine)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().view(-1, VOCABULARY), targets.view(-1))


def trainer(forward, model, half):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-6,
                              weight_decay=0.01, foreach=True)

    def step():
        context = torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext()
        with context:
            loss = forward(tokens, tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()

    return step


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seconds", type=float, default=4)
    given = arguments.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    steps = {}
    for mode in ["eager", "compiled"]:
        model = Model()
        step = trainer(model if mode == "eager" else torch.compile(model), model,
                       given.dtype == "bf16")
        try:
            for _ in range(2):
                step()
            steps[mode] = step
        except Exception as reason:  # no compiler on this machine: eager alone is measured
            peer.say(left_out=mode, reason=str(reason)[:200])
    peer.say(ready=True, torch=torch.__version__, modes=list(steps))

    def measure():
        rates = {mode: BATCH * LENGTH / peer.median_seconds(step, given.seconds / len(steps))
                 for mode, step in steps.items()}
        best = max(rates, key=rates.get)
        return {"tokens_per_second": rates[best], "mode": best}

    peer.serve(measure)


if __name__ == "__main__":
    main()
