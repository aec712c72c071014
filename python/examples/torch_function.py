"""A mixer of longshot as a torch.autograd.Function: its outputs and gradients in PyTorch's graph.

    python torch_function.py

compares causal attention with PyTorch's own, values and gradients, in f64. Put an implementation
of your own in the place of `theirs` to hold it against ours.
"""
import longshot
import torch
from torch.nn.functional import linear, scaled_dot_product_attention


def array(tensor):
    return tensor.detach().contiguous().numpy()  # the same memory, seen by numpy


class Mixer(torch.autograd.Function):
    """apply(mixer, options, names, x, *weights): y. Weights have the names of longshot's files;
    gradients come back under its own names, which `names` therefore holds."""

    @staticmethod
    def forward(ctx, mixer, options, names, x, *weights):
        ctx.how = (mixer, options, names)
        ctx.save_for_backward(x, *weights)
        given = dict(zip(names, map(array, weights)))
        return torch.from_numpy(longshot.apply(mixer, array(x), given, **options)["y"])

    @staticmethod
    def backward(ctx, dy):
        mixer, options, names = ctx.how
        x, *weights = ctx.saved_tensors
        given = dict(zip(names, map(array, weights)))
        got = longshot.apply(mixer, {"x": array(x), "cot": array(dy)}, given, **options)
        grads = [torch.from_numpy(got[f"grad.{name}"]) for name in names]
        return (None, None, None, torch.from_numpy(got["grad.x"]), *grads)


def theirs(x, qkv, out, heads):
    """The same in PyTorch."""
    batch, time, width = x.shape
    q, k, v = (part.view(batch, time, heads, -1).transpose(1, 2)
               for part in linear(x, qkv).split(width, -1))
    y = scaled_dot_product_attention(q, k, v, is_causal=True)
    return linear(y.transpose(1, 2).reshape(batch, time, width), out)


def main():
    torch.manual_seed(1)
    heads, width = 2, 16
    tensors = [torch.randn(2, 12, width), torch.randn(3 * width, width) / 4,
               torch.randn(width, width) / 4]
    sides = []
    for side in range(2):
        x, qkv, out = (t.double().clone().requires_grad_() for t in tensors)
        options = {"heads": heads, "position": "none"}
        y = (Mixer.apply("attention", options, ("qkv.weight", "out.weight"), x, qkv, out)
             if side else theirs(x, qkv, out, heads))
        (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype).view_as(y))).sum().backward()
        sides.append((y, x.grad, qkv.grad, out.grad))
    worst = 0.0
    for name, a, b in zip(("y", "grad x", "grad qkv", "grad out"), *sides):
        difference = ((a - b).abs().max() / a.abs().max()).item()
        worst = max(worst, difference)
        print(f"{name:>8}: {difference:.1e}")
    return 0 if worst < 1e-12 else 1


if __name__ == "__main__":
    raise SystemExit(main())
