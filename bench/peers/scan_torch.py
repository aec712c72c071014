"""PyTorch beside `longshot bench what=scan`: Mamba's selective scan alone in plain tensor code,
batch 1, 512 channels of 16 states, 2048 tokens, forward or with its gradients."""
import torch
import torch.nn.functional as F

import peer

LENGTH, CHANNELS, STATES = 2048, 512, 16


def loop(decay, moved):
    """Token after token; taken apart once, so that the way back is linear in the length too."""
    state, states = torch.zeros_like(moved[:, 0]), []
    for a, b in zip(decay.unbind(1), moved.unbind(1)):
        state = a * state + b
        states.append(state)
    return torch.stack(states, 1)


def scan(u, delta, A_log, B, C, D, z, bias):
    u, delta, B, C = (x.float() for x in (u, delta, B, C))  # states are f32 here too
    d = F.softplus(delta + bias)
    decay = torch.exp(d.unsqueeze(-1) * -torch.exp(A_log))
    moved = (d * u).unsqueeze(-1) * B.unsqueeze(2)
    y = torch.einsum("bten,btn->bte", loop(decay, moved), C) + D * u
    return y.to(z.dtype) * F.silu(z)


def main():
    given = peer.arguments()
    kind = given.kind

    def draw(*shape, kind=kind):
        return torch.rand(shape).sub(0.5).to(kind).requires_grad_(given.grad == 1)

    wide, narrow = (1, LENGTH, CHANNELS), (1, LENGTH, STATES)
    operands = (draw(*wide), draw(*wide), draw(CHANNELS, STATES, kind=torch.float32), draw(*narrow),
                draw(*narrow), draw(CHANNELS, kind=torch.float32), draw(*wide),
                draw(CHANNELS, kind=torch.float32))
    cotangent = torch.rand(wide).sub(0.5).to(kind)
    step = peer.stepper(given, scan, operands, cotangent)
    step()
    peer.say(ready=True, torch=torch.__version__)
    peer.serve(lambda: {"seconds": {"loop": peer.median_seconds(step, given.seconds)}})


if __name__ == "__main__":
    main()
