"""What the drivers of this folder share: the two modes, float64, and the file format.

    python3 DRIVER.py PUBLIC FOLDER [CASE ...]          writes FOLDER/CASE.safetensors
    python3 DRIVER.py --check PUBLIC FOLDER [CASE ...]  runs the public code on the weights and inputs of
                                                        FOLDER/CASE.safetensors and compares with the file

PUBLIC is a folder of checkouts named as their repositories (PUBLIC/safari, PUBLIC/mamba, ...), or with
their owners where two share a name (PUBLIC/sunyt32/torchscale). A file `.commit` in a checkout names its
commit where there is no git.
"""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import types

import numpy as np

OUTPUT_TOLERANCE, GRADIENT_TOLERANCE, ROUNDING = 1e-11, 1e-10, 1e-13


# ---- public code ----

def public(name):
    """Path of a checkout; its modules can be imported from then on."""
    path = os.path.join(PUBLIC, name)
    if not os.path.isdir(path):
        raise SystemExit(f"there is no checkout {path}")
    if path not in sys.path:
        sys.path.insert(0, path)
    return path


def library():
    """The checkout of huggingface/transformers, in place of a package that may be installed."""
    sys.path.insert(0, os.path.join(public("transformers"), "src"))
    import transformers
    return transformers


def commit(name):
    path = os.path.join(PUBLIC, name)
    if not os.path.isdir(path):
        path = os.path.join(PUBLIC, name.split("/")[-1])
    if os.path.exists(os.path.join(path, ".commit")):
        return open(os.path.join(path, ".commit")).read().strip()
    return subprocess.check_output(["git", "-C", path, "rev-parse", "HEAD"], text=True).strip()


class Stub(types.ModuleType):
    """Stands for a package that the computation does not use; calling into it is an error."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": self._refuse, "__call__": self._refuse})

    def _refuse(self, *_, **__):
        raise RuntimeError("a stub was used")


def there(name):
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def stub(*names):
    for name in names:
        parent = name.rpartition(".")[0]
        if parent and not there(parent):
            stub(parent)
        if name not in sys.modules:
            sys.modules[name] = Stub(name)
            sys.modules[name].__path__ = []


def absent(*names):
    """Packages that are not to be found: public code then takes its way without them."""
    for name in names:
        sys.modules[name] = None


def bare(name, path):
    """A package whose modules can be imported without what its __init__.py brings along."""
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]


def lightning():
    """Training harness; the layers here only ask it on which process to log."""
    stub("pytorch_lightning.utilities")
    sys.modules["pytorch_lightning.utilities"].rank_zero_only = lambda function: function


def source(path, name):
    """A module from one file, without the package around it."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def in_double():
    """PyTorch in float64, also where public code casts to float32."""
    import torch
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.float = torch.float32 = torch.float64
    torch.cfloat = torch.complex64 = torch.complex128
    torch.Tensor.float = torch.Tensor.double
    return torch


def handed(model, layer, *given, **words):
    """The named arguments with which a PyTorch model calls a layer of its own, but for the rows."""
    import torch
    kept = []
    hook = layer.register_forward_pre_hook(lambda _, rows, names: kept.append(names), with_kwargs=True)
    with torch.no_grad():
        model(*given, **words)
    hook.remove()
    return {name: value for name, value in kept[0].items() if name not in ("hidden_states", "query", "key", "value")}


# ---- files ----

KINDS = {"float64": "F64", "int64": "I64", "float32": "F32", "int32": "I32", "uint8": "U8"}


def as_real(value):
    """numpy; complex numbers get a last axis of re, im."""
    if hasattr(value, "detach"):
        value = value.detach().resolve_conj().cpu().numpy()
    value = np.ascontiguousarray(value)
    if np.iscomplexobj(value):
        value = np.stack([value.real, value.imag], -1)
    return value.astype("int64") if value.dtype.kind in "iub" else value.astype("float64")


def write(path, tensors, about):
    header, offset, parts = {"__metadata__": about}, 0, []
    for name in sorted(tensors, key=lambda n: (tensors[n].dtype.kind != "i", n)):
        data = np.ascontiguousarray(tensors[name]).tobytes()
        header[name] = {"dtype": KINDS[str(tensors[name].dtype)], "shape": list(tensors[name].shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    kinds = {kind: name for name, kind in KINDS.items()}
    return {name: np.frombuffer(data[8 + size + at["data_offsets"][0]:8 + size + at["data_offsets"][1]],
                                kinds[at["dtype"]]).reshape(at["shape"])
            for name, at in header.items()}


def compare(name, want, got):
    worst, missing = {"out": (0, ""), "grad": (0, "")}, False
    largest = {kind: max([np.abs(v).max() for n, v in want.items() if n.startswith(kind) and v.size], default=0)
               for kind in worst}
    for tensor, value in want.items():
        kind = tensor.split(".")[0]
        if kind in ("w", "in") and tensor in got:  # the file's, unless the public code made it: a constant, a mask
            kind = "out"
        if kind not in worst or value.size == 0:
            continue
        if tensor not in got:
            print(f"{name}: {tensor} is not computed here")
            missing = True
            continue
        size = np.abs(value).max()
        if size < ROUNDING * largest[kind]:  # 0 but for rounding, as gradients of key biases
            size = largest[kind]
        difference = np.abs(got[tensor] - value).max() / (size or 1)
        worst[kind] = max(worst[kind], (difference, tensor), key=lambda pair: pair[0])
    good = not missing and worst["out"][0] <= OUTPUT_TOLERANCE and worst["grad"][0] <= GRADIENT_TOLERANCE
    print(f"{name}: outputs {worst['out'][0]:.1e} ({worst['out'][1]}), gradients "
          f"{worst['grad'][0]:.1e} ({worst['grad'][1]}){'' if good else '  DIFFERS'}")
    return good


# ---- cases ----

class Case:
    """Values of one file. In check mode `given` are those of the file, else None."""

    def __init__(self, name):
        self.name, self.tensors, self.about = name, {}, {}
        self.path = os.path.join(FOLDER, name + ".safetensors")
        self.given = read(self.path) if CHECK else None

    def put(self, name, value):
        self.tensors[name] = as_real(value)

    def tell(self, repository, file, config, note):
        """Where it comes from; the repository is OWNER/NAME, checked out as NAME or as OWNER/NAME."""
        names = repository.split(" + ")
        self.about = {
            "repo": repository, "file": file,
            "commit": " + ".join(commit(name) for name in names),
            "config": json.dumps(config), "note": note, "kind": "official", "dtype": "torch.float64",
        }

    # -- PyTorch --

    def number(self, name, shape, draw=None):
        """An input or cotangent: drawn, or the file's."""
        import torch
        if self.given is not None and name in self.given:
            return torch.tensor(self.given[name])
        return (draw or torch.randn)(shape)

    def weights(self, module, buffers=(), names=None):
        """Gives a module's parameters values in which nothing is hidden by a zero, or the file's.
        Returns them under the names of the file."""
        import torch
        held = dict(module.named_parameters())
        held.update({name: value for name, value in module.named_buffers() if name in buffers})
        held = {(names(name) if names else name): value for name, value in held.items()}
        held = {name: value for name, value in held.items() if name is not None}
        with torch.no_grad():
            for name, value in held.items():
                if self.given is not None and "w." + name in self.given:
                    real = torch.tensor(self.given["w." + name])
                    if real.numel() == value.numel():  # scalars are vectors of 1 in files
                        real = real.reshape(value.shape)
                    value.copy_(torch.view_as_complex(real) if value.is_complex() else real)
                elif name not in buffers and value.is_floating_point():
                    spread = value.std().item() if value.numel() > 1 else 0.0
                    if spread < 1e-9:
                        value.add_(0.2 * torch.randn_like(value))
                    elif spread < 0.1:
                        value.mul_(0.2 / spread)
        return held

    def gradients(self, outputs, weights, inputs, silent=()):
        """Records everything: outputs with their cotangents, unless silent; y has the cotangent
        `cot`, any other NAME `cot.NAME`."""
        import torch
        total = 0
        for name, value in inputs.items():
            self.put("in." + name, value)
        for name, value in weights.items():
            self.put("w." + name, value)
        for name, value in outputs.items():
            self.put("out." + name, value)
            if name in silent:
                continue
            cot_name = "cot" if name == "y" else "cot." + name
            real = torch.view_as_real(value) if value.is_complex() else value
            cot = self.number(cot_name, real.shape)
            self.put(cot_name, cot)
            total = total + (real * cot).sum()
        leaves = {"in." + n: v for n, v in inputs.items() if v.requires_grad}
        leaves.update({"w." + n: v for n, v in weights.items() if v.requires_grad})
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        missing = []
        for name, gradient in zip(leaves, found):
            if gradient is None:
                missing.append(name)
            else:
                self.put("grad." + name, gradient)
        self.about["no_gradient"] = ",".join(n.split(".", 1)[1] for n in missing)


def leaf(value):
    return value.clone().requires_grad_(True)


def main(cases):
    """cases: NAME -> function that fills a Case."""
    global CHECK, PUBLIC, FOLDER
    words = sys.argv[1:]
    CHECK = "--check" in words
    words = [word for word in words if word != "--check"]
    if len(words) < 2:
        raise SystemExit(__doc__)
    PUBLIC, FOLDER = os.path.abspath(words[0]), words[1]
    unknown = set(words[2:]) - set(cases)
    if unknown:
        raise SystemExit("no such case: " + " ".join(sorted(unknown)))
    good = True
    for name in words[2:] or cases:
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(sum(map(ord, name)))
        case = Case(name)
        cases[name](case)
        if CHECK:
            good = compare(name, case.given, case.tensors) and good
        else:
            write(case.path, case.tensors, case.about)
            print(case.path, os.path.getsize(case.path))
    sys.exit(0 if good else 1)
