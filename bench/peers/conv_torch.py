"""PyTorch beside `longshot bench what=conv`: the causal convolution of every channel with kernels
as long as the text, by transforms of twice the length, forward or with its gradients."""
import torch

import peer


def convolve(u, kernel, skip):
    length = u.shape[1]
    x = torch.fft.rfft(u.float().transpose(1, 2), n=2 * length)
    y = torch.fft.irfft(x * torch.fft.rfft(kernel, n=2 * length), n=2 * length)[..., :length]
    return y.transpose(1, 2).to(u.dtype) + u * skip


def main():
    given = peer.arguments(batch=1, length=2048, channels=64)
    texts = (given.batch, given.length, given.channels)

    def numbers(shape, kind=torch.float32):
        return torch.rand(shape, device=given.device).sub(0.5).to(kind)

    u, cotangent = numbers(texts, given.kind), numbers(texts, given.kind)
    operands = (u, numbers((given.channels, given.length)), numbers(given.channels, given.kind))
    for operand in operands:
        operand.requires_grad_(given.grad == 1)
    step = peer.stepper(given, convolve, operands, cotangent)
    step()
    peer.say(ready=True, torch=torch.__version__)
    peer.serve(lambda: {"seconds": {"fft": peer.median_seconds(step, given.seconds)}})


if __name__ == "__main__":
    main()
