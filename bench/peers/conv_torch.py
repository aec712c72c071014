"""PyTorch beside `longshot bench what=conv`: the causal convolution of every channel with kernels
as long as the text, by transforms of twice the length, forward or with its gradients."""
import argparse

import torch

import peer


def convolve(u, kernel, skip):
    length = u.shape[1]
    x = torch.fft.rfft(u.float().transpose(1, 2), n=2 * length)
    y = torch.fft.irfft(x * torch.fft.rfft(kernel, n=2 * length), n=2 * length)[..., :length]
    return y.transpose(1, 2).to(u.dtype) + u * skip


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    arguments.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--length", type=int, default=2048)
    arguments.add_argument("--channels", type=int, default=64)
    arguments.add_argument("--grad", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=1)
    given = arguments.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    kind = torch.bfloat16 if given.dtype == "bf16" else torch.float32
    texts = (given.batch, given.length, given.channels)

    def numbers(shape, kind=torch.float32):
        return torch.rand(shape, device=given.device).sub(0.5).to(kind)

    u, cotangent = numbers(texts, kind), numbers(texts, kind)
    kernel, skip = numbers((given.channels, given.length)), numbers(given.channels, kind)
    for operand in (u, kernel, skip):
        operand.requires_grad_(given.grad == 1)

    def step():
        if given.grad:
            torch.autograd.grad(convolve(u, kernel, skip), (u, kernel, skip), cotangent)
        else:
            with torch.no_grad():
                convolve(u, kernel, skip)
        if given.device == "cuda":
            torch.cuda.synchronize()

    step()
    peer.say(ready=True, torch=torch.__version__)
    peer.serve(lambda: {"seconds": {"fft": peer.median_seconds(step, given.seconds)}})


if __name__ == "__main__":
    main()
