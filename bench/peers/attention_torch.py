"""PyTorch beside `longshot bench what=attention`: attention alone, forward or with its
gradients. On the processor scaled_dot_product_attention; on a device its flash and cuDNN forms for plain
causal attention (in f32 its memory-efficient form), and compiled flex_attention for slopes and windows."""
import torch
import torch.nn.functional as F

import peer


def flex(given, device):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    slopes = torch.exp2(-8.0 * (torch.arange(given.heads, device=device) + 1) / given.heads)
    window = given.window or given.length

    def admitted(b, h, n, m):
        return (n >= m) & (n - m < window)

    def biased(score, b, h, n, m):
        return score - slopes[h] * (n - m)

    mask = create_block_mask(admitted, None, None, given.length, given.length, device=device)
    compiled = torch.compile(flex_attention)
    modifier = biased if given.slopes else None
    return lambda q, k, v: compiled(q, k, v, score_mod=modifier, block_mask=mask)


def methods(given, device):
    def plain(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    if device == "cpu":
        return {"PyTorch": plain}
    if given.slopes or given.window:
        return {"flex": flex(given, device)}
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def chosen(backend):
        def call(q, k, v):
            with sdpa_kernel(backend):
                return plain(q, k, v)
        return call

    if given.kind is torch.float32:  # the two others take 16 bits alone
        return {"efficient": chosen(SDPBackend.EFFICIENT_ATTENTION)}
    return {"flash": chosen(SDPBackend.FLASH_ATTENTION), "cuDNN": chosen(SDPBackend.CUDNN_ATTENTION)}


def main():
    given = peer.arguments(heads=6, width=64, length=1024, window=0, slopes=0, batch=1)
    shape = (given.batch, given.length, given.heads, given.width)

    def numbers():  # [B,T,H,K] in memory, as a model has it
        return torch.rand(shape, device=given.device).sub(0.5).to(given.kind).transpose(1, 2)

    operands = tuple(numbers().requires_grad_(given.grad == 1) for _ in range(3))
    cotangent = numbers()
    steps = {}
    for name, attend in methods(given, given.device).items():
        step = peer.stepper(given, attend, operands, cotangent)
        try:
            for _ in range(3):
                step()
            steps[name] = step
        except Exception as reason:  # this version of PyTorch refuses the case
            peer.say(left_out=name, reason=str(reason)[:200])
    peer.say(ready=True, torch=torch.__version__)
    peer.serve(lambda: {"seconds": {name: peer.median_seconds(step, given.seconds / len(steps))
                                    for name, step in steps.items()}})


if __name__ == "__main__":
    main()
