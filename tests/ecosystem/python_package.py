"""The Python package as users get it: a wheel of this source, in an environment with nothing else,
the notebook, the example with PyTorch, and what Python costs beside the program."""

import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import venv

import check

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(check.work, "python")
SITE = WORK / "site"
LARGEST = 20e6  # bytes of a wheel without CUDA
COST = 0.03     # of model.loss on 8,192 tokens, beside the program
CORPUS = check.corpus()


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{words[:4]}: {done.stdout[-400:]} {done.stderr[-800:]}")
    return done.stdout


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LONGSHOT_")}
    return {**kept, "PYTHONPATH": str(SITE)}


def trained(name, *words):
    """A run with rotary positions."""
    out = WORK / name
    check.longshot("train", f"out={out}", f"data.corpus={CORPUS}", "model.position=rope", *words)
    return out


def wheel(name):
    shutil.rmtree(WORK / "dist", ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", WORK / "dist", ROOT,
        env={**os.environ, "LONGSHOT_CUDA": "OFF"})
    (made,) = (WORK / "dist").glob("*.whl")
    size = made.stat().st_size
    check.report(f"{name}: {made.name}", size < LARGEST, f"{size / 1e6:.1f} MB")
    shutil.rmtree(SITE, ignore_errors=True)
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", SITE, made)


def fresh(name):
    """Nothing but the wheel and what it asks for; from another folder."""
    shutil.rmtree(WORK / "fresh", ignore_errors=True)
    venv.create(WORK / "fresh", with_pip=True)
    python = WORK / "fresh" / "bin" / "python"
    (made,) = (WORK / "dist").glob("*.whl")
    run(python, "-m", "pip", "install", "-q", made)
    model = trained("small", "model.layers=1", "model.width=32", "model.length=64",
                    "train.steps=50")
    code = f"import longshot\nmodel = longshot.open({str(model)!r})\n" \
           "print(model.loss(model.tokenize('a text')).shape)\nhelp(longshot)"
    env = {k: v for k, v in environment().items() if k != "PYTHONPATH"}
    said = run(python, "-c", code, cwd="/", env=env)
    others = json.loads(run(python, "-m", "pip", "list", "--format=json"))
    names = {one["name"] for one in others} - {"pip", "setuptools", "wheel"}
    check.report(f"{name}: opens a run", said.startswith("(5,)") and "model.generate" in said)
    check.report(f"{name}: needs numpy alone", names == {"longshot", "numpy"}, str(names))
    version = run(WORK / "fresh" / "bin" / "longshot", "--version", env=env)
    check.report(f"{name}: the program", version == check.longshot("--version"), version.strip())


def notebook(name):
    import nbclient
    import nbformat

    model = trained("small", "model.layers=1", "model.width=32", "model.length=64",
                    "train.steps=50")
    os.environ.update({"LONGSHOT_CHECKPOINT": str(model), "PYTHONPATH": str(SITE),
                       "MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    book = nbformat.read(ROOT / "docs" / "checkpoint.ipynb", as_version=4)
    where = {"metadata": {"path": str(WORK)}}
    nbclient.NotebookClient(book, timeout=300, resources=where).execute()
    seen = [output for cell in book.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in seen for kind in output.get("data", {})}
    errors = [output for output in seen if output.output_type == "error"]
    check.report(f"{name}: {len(book.cells)} cells",
                 len(book.cells) == 10 and not errors and {"image/png", "text/html"} <= kinds,
                 str(sorted(kinds)))


STUDY = """title: Two arms
seeds: [1]
model: {layers: 1, width: 16, length: 16}
mixer: {heads: 2}
train: {steps: 5, batch: 2}
eval: {protocol: nonoverlap, lengths: [16, 32], tokens: 256}
arms:
  rope: {model.position: rope}
  alibi: {model.position: alibi}
"""


def study(name):
    """The jobs are the program that the wheel carries."""
    (WORK / "study.yaml").write_text(STUDY)
    shutil.rmtree(WORK / "study", ignore_errors=True)
    code = (f"import longshot\nprint(len(longshot.study({str(WORK / 'study.yaml')!r}, "
            f"out={str(WORK / 'study')!r}, data={{'corpus': {CORPUS!r}}}).rows))")
    said = run(sys.executable, "-c", code, env=environment())
    check.report(f"{name}: two arms", said == "4\n", said.strip())


def tensors(name):
    """PyTorch's tensors are read and written where they are."""
    code = ("import longshot, torch\n"
            f"model = longshot.open({str(WORK / 'small')!r})\n"
            "ids = torch.arange(60, dtype=torch.int32)\n"
            "out = torch.zeros(59)\n"
            "got = model.loss(ids, out=out)\n"
            "seen = longshot._arrays.ids_of(ids)\n"
            "print(seen.ctypes.data == ids.data_ptr(), got.ctypes.data == out.data_ptr(),\n"
            "      bool((out > 0).all()), torch.from_dlpack(got).data_ptr() == out.data_ptr())")
    said = run(sys.executable, "-c", code, env=environment())
    check.report(f"{name}: not copied", said.split() == ["True"] * 4, said.strip())


def autograd(name):
    said = run(sys.executable, ROOT / "python" / "examples" / "torch_function.py",
               env=environment())
    check.report(f"{name}: as PyTorch", said.count("\n") == 4, " ".join(said.split()))


def cost(name):
    """CPU time on one thread: that of others on the machine is not counted."""
    model = trained("wide", "model.layers=2", "model.width=128", "model.length=512",
                    "train.steps=1")
    code = ("import longshot, numpy, time\n"
            f"model = longshot.open({str(model)!r}, threads=1)\n"
            f"ids = model.tokenize(open({CORPUS!r}, 'rb').read(8192))\n"
            "model.loss(ids)\nbegin = time.process_time()\nmodel.loss(ids)\n"
            "print(time.process_time() - begin)")

    def of_program(tokens):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        check.longshot("eval", str(model), f"eval.lengths={tokens}", f"eval.tokens={tokens}",
                       "eval.batch=1", "threads=1")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    ours, theirs, start = [], [], []
    for _ in range(5):
        ours.append(float(run(sys.executable, "-c", code, env=environment())))
        theirs.append(of_program(8192))
        start.append(of_program(16))
    share = min(ours) / (min(theirs) - min(start)) - 1
    check.report(f"{name}: model.loss on 8,192 tokens", share < COST,
                 f"{min(ours):.3f} s of CPU time, {100 * share:+.1f} % beside longshot eval")


WORK.mkdir(parents=True, exist_ok=True)
check.each({"wheel": wheel, "fresh environment": fresh, "notebook": notebook, "study": study,
            "tensors": tensors, "autograd": autograd, "cost": cost},
           lambda name, case: case(name))
