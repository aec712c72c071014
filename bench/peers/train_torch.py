"""PyTorch beside `longshot bench what=train`: the same decoder (pre-norm, GELU, tied head; RoPE, xPos
or ALiBi), AdamW with clipping. Eager and compiled are both measured; the faster one counts."""
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

import peer


def tables(given):
    """Cosines and sines [T, pairs], and the xPos factors of queries and keys."""
    pairs = given.width // given.heads // 2
    position = torch.arange(given.length)[:, None]
    angle = position * 10000.0 ** (-torch.arange(pairs) / pairs)
    decay = ((torch.arange(pairs) * 2 + 0.4 * 2 * pairs) / (1.4 * 2 * pairs)) ** (
        (position - given.length // 2) / 512)
    if given.position != "xpos":
        decay = torch.ones_like(decay)
    return torch.stack([angle.cos() * decay, angle.sin() * decay, angle.cos() / decay,
                        angle.sin() / decay])


def rotate(x, cosine, sine):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], dim=-1)


def attention(given):
    if given.position != "alibi":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    slopes = torch.exp2(-8.0 * (torch.arange(given.heads, device=given.device) + 1) / given.heads)
    mask = create_block_mask(lambda b, h, n, m: n >= m, None, None, given.length, given.length,
                             device=given.device)
    return lambda q, k, v: flex_attention(
        q, k, v, score_mod=lambda s, b, h, n, m: s - slopes[h] * (n - m), block_mask=mask)


class Block(nn.Module):
    def __init__(self, given):
        super().__init__()
        width = given.width
        self.given, self.attend = given, attention(given)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, turn):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.given.heads, -1).permute(
            2, 0, 3, 1, 4)
        if self.given.position != "alibi":
            q, k = rotate(q, turn[0], turn[1]).to(v.dtype), rotate(k, turn[2], turn[3]).to(v.dtype)
        y = self.attend(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.given.gelu))


class Model(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.embedding = nn.Embedding(given.vocabulary, given.width)
        self.blocks = nn.ModuleList(Block(given) for _ in range(given.layers))
        self.norm = nn.LayerNorm(given.width)
        self.register_buffer("turn", tables(given))

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.turn)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.view(-1))


def trainer(forward, model, given):
    tokens = torch.randint(given.vocabulary, (given.batch, given.length), device=given.device)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-6,
                              weight_decay=0.01, **({"fused": True} if given.device == "cuda"
                                                    else {"foreach": True}))

    def step():
        half = given.dtype == "bf16"
        with torch.autocast(given.device, torch.bfloat16) if half else contextlib.nullcontext():
            loss = forward(tokens, tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()
        if given.device == "cuda":
            torch.cuda.synchronize()

    return step


def main():
    given = peer.arguments(position="rope", layers=6, width=384, heads=6, vocabulary=256, batch=16,
                           length=256, seconds=4.0, matmul="exact")
    given.gelu = "tanh" if given.device == "cuda" else "none"  # as the models of `longshot bench`
    if given.matmul == "tf32":
        torch.set_float32_matmul_precision("high")
    steps = {}
    for mode in ["eager", "compiled"] if given.device == "cpu" else ["compiled"]:
        model = Model(given).to(given.device)
        step = trainer(model if mode == "eager" else torch.compile(model), model, given)
        try:
            for _ in range(3):
                step()
            steps[mode] = step
        except Exception as reason:  # no compiler on this machine: eager alone is measured
            peer.say(left_out=mode, reason=str(reason)[:200])
    peer.say(ready=True, torch=torch.__version__, modes=list(steps))

    peer.serve(lambda: {"seconds": {mode: peer.median_seconds(step, given.seconds / len(steps))
                                    for mode, step in steps.items()}})


if __name__ == "__main__":
    main()
