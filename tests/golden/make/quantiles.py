"""What initial.py and initial_long.py print of the tensors that public code draws."""
import torch

QUANTILES, DRAWS = 33, 20000


def numbers(values):
    return " ".join("%.9g" % v for v in values)


def tell(name, settings, source, make, names):
    """names: ours to the public one; one that ends in `!` has equal rows."""
    print("model %s | %s | %s" % (name, settings, source))
    for ours, public in names.items():
        rows = public.endswith("!")
        public, seen, seed = public.rstrip("!"), [], 0
        while sum(v.numel() for v in seen) < DRAWS and seed < 200:
            torch.manual_seed(seed)
            seen.append(dict(make().named_parameters())[public].detach().double())
            seed += 1
        if rows:
            first = seen[0].reshape(-1, seen[0].shape[-1])
            assert (first == first[0]).all() and all((s == seen[0]).all() for s in seen)
            print("rows %s | %s | %s | %s" % (name, ours, public, numbers(first[0])))
            continue
        values = torch.cat([s.flatten() for s in seen])
        places = torch.linspace(0, 1, QUANTILES, dtype=torch.float64)
        print("weights %s | %s | %s | %d | %s" % (name, ours, public, values.numel(),
                                                 numbers(torch.quantile(values[:10**6], places))))
