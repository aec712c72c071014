"""PyTorch beside `longshot bench what=attention`: causal attention alone, batch 1, 6 heads of 64,
forward or with its gradients."""
import argparse

import torch
import torch.nn.functional as F

import peer

HEADS, WIDTH = 6, 64


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--length", type=int, default=1024)
    arguments.add_argument("--grad", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=1)
    given = arguments.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    kind = torch.bfloat16 if given.dtype == "bf16" else torch.float32
    shape = (1, HEADS, given.length, WIDTH)
    q, k, v = (torch.rand(shape).sub(0.5).to(kind).requires_grad_(given.grad == 1)
               for _ in range(3))
    cotangent = torch.rand(shape).sub(0.5).to(kind)

    def step():
        if given.grad:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            torch.autograd.grad(y, (q, k, v), cotangent)
        else:
            with torch.no_grad():
                F.scaled_dot_product_attention(q, k, v, is_causal=True)

    step()
    peer.say(ready=True, torch=torch.__version__)
    peer.serve(lambda: {"seconds": peer.median_seconds(step, given.seconds)})


if __name__ == "__main__":
    main()
