"""S4 and S4D (state-spaces/s4): S4Block of models/s4/s4.py, S4D of models/s4/s4d.py."""
import os

import common

torch = common.in_double()
BUFFERS = ("layer.kernel.l_kernel",)
EIGH = torch.linalg.eigh


def code(file):
    path = common.public("s4")
    common.lightning()
    common.stub("hydra", "omegaconf", "rich.syntax", "rich.tree")
    return common.source(os.path.join(path, "models/s4", file), "public_" + file[:-3])


def stepped(module, x, mode):
    with torch.no_grad():
        module.setup_step(**({"mode": mode} if mode else {}))
        state, rows = module.default_state(len(x)), []
        for t in range(x.shape[1]):
            row, state = module.step(x[:, t], state)
            rows.append(row)
    return torch.stack(rows, 1)


def block(note, B, T, rate=1.0, steps=None, **config):
    """steps: OUTPUT -> mode of the recurrence."""
    def fill(case):
        module = code("s4.py").S4Block(transposed=False, **config)
        weights = case.weights(module, BUFFERS)
        kernel = module.layer.kernel
        if hasattr(kernel, "l_kernel"):  # parameters from here on: C for a length, as a trained file has it
            if case.given is None:
                kernel._setup_C(config["l_max"])
            else:
                kernel.l_kernel.fill_(config["l_max"])
            weights[BUFFERS[0]] = kernel.l_kernel
        x = common.leaf(case.number("in.x", (B, T, config["d_model"])))
        outputs = {"y": module(x, rate=rate)[0]}
        for name, mode in (steps or {}).items():
            outputs[name] = stepped(module, x, mode)
        if "out.kernel" in (case.given or {}):
            outputs["kernel"] = kernel(L=T)[0]
        case.tell("state-spaces/s4", "models/s4/s4.py", dict(config, rate=rate, B=B, T=T), "S4Block; " + note)
        case.gradients(outputs, weights, {"x": x}, silent=set(outputs) - {"y"})
    return fill


def minimal(note, B, T, **config):
    def fill(case):
        module = code("s4d.py").S4D(transposed=False, **config)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, config["d_model"])))
        y = module(x)[0]
        case.tell("state-spaces/s4", "models/s4/s4d.py", dict(config, B=B, T=T), "S4D; " + note)
        case.gradients({"y": y}, weights, {"x": x})
    return fill


def eigenvectors(case, name, made):
    """eigh with the phases that the file's library chose: they are free, and B tells them. `made` is B with the
    phases of the library at hand, without the clip of imaginary parts at 2 that the file's may have."""
    if case.given is None:
        return EIGH
    want = torch.view_as_complex(torch.tensor(case.given[name])).reshape(-1)
    hidden = want.imag.sign() * (made.abs() ** 2 - want.real ** 2).clamp(min=0).sqrt()
    want = torch.complex(want.real, torch.where(want.imag.abs() == 2, hidden, want.imag))
    phases = torch.sgn(made * want.conj())

    def turned(matrix):
        values, vectors = EIGH(matrix)
        return values, torch.cat([vectors[:, :len(phases)] * phases, vectors[:, len(phases):]], 1)
    return turned


def hippo(case):
    module = code("s4.py")

    def like_file(name, measure, N, rank):
        torch.linalg.eigh = EIGH
        torch.linalg.eigh = eigenvectors(case, name, module.nplr(measure, N, rank, B_clip=None)[2])

    for measure, rank in (("legs", 1), ("legt", 2), ("fout", 1)):
        for N in (4, 8, 64):
            name = f"out.{measure}{N}."
            if N < 64:
                for part, value in zip("AB", module.transition(measure, N)):
                    case.put(name + part, value)
            like_file(name + "nplr_B_noclip", measure, N, rank)
            for part, value in zip("WPB", module.nplr(measure, N, rank)):
                case.put(f"{name}nplr_{part}", value)
            case.put(name + "nplr_B_noclip", module.nplr(measure, N, rank, B_clip=None)[2])
    like_file("out.diag_legs.B", "legs", 16, 1)
    for init in ("inv", "legs", "lin", "quad", "real"):
        A, _, B, _ = module.dplr(init, N=16)
        case.put(f"out.diag_{init}.A", A)
        case.put(f"out.diag_{init}.B", B)
    torch.linalg.eigh = EIGH
    case.tell("state-spaces/s4", "models/s4/s4.py", {},
              "transition() matrices A, B; nplr() diagonalisation W, P, B and dplr() A, B (complex as last axis 2); "
              "eigenvector phases are those of the library used, so compare |P|, |B| and W only; B imaginary parts "
              "are clipped at 2")


common.main({
    "s4-hippo": hippo,
    "s4-dplr": block("C for length 48", 2, 37, d_model=8, d_state=16, l_max=48, mode="dplr", init="legs",
                     steps={"step_dense": "dense", "step_linear": "linear"}),
    "s4d-lin-zoh": block("diagonal", 2, 50, d_model=8, d_state=16, mode="s4d", init="diag-lin", disc="zoh",
                         steps={"step": None}),
    "s4-l-max": block("l_max 21 at rate 2: C and kernel of 10 steps (halves go to the even number), T beyond it",
                      2, 40, rate=2.0, d_model=6, d_state=10, l_max=21, mode="dplr"),
    "s4-legt": block("init legt, rank 2, n_ssm 2; out.step: recurrence with dense matrices", 2, 19, d_model=4,
                     d_state=6, l_max=23, mode="dplr", init="legt", rank=2, n_ssm=2, steps={"step": "dense"}),
    "s4-plain": block("activation and final_act None", 1, 19, d_model=5, d_state=6, l_max=19, mode="dplr",
                      activation=None, final_act=None),
    "s4-untied": block("bidirectional, n_ssm 2, dt_tie false, dt by softplus", 1, 19, d_model=6, d_state=6,
                       l_max=19, mode="dplr", bidirectional=True, n_ssm=2, dt_tie=False, dt_transform="softplus"),
    "s4d-channels": block("bidirectional, channels 3, activation glu, n_ssm 2", 2, 23, d_model=4, d_state=6,
                          mode="s4d", init="diag-lin", bidirectional=True, channels=3, activation="glu", n_ssm=2),
    "s4d-real": block("is_real", 2, 21, d_model=5, d_state=6, mode="s4d", init="diag-real", is_real=True),
    "s4d-minimal": minimal("no B", 2, 43, d_model=6, d_state=10),
})
