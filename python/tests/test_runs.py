"""Training, evaluation and studies from Python."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import fixture
import longshot
import numpy as np
from longshot import _settings


class Settings(fixture.Case):
    def test_words(self):
        given = {"model": {"width": np.int64(64), "layers": ["mamba", "attention"]}, "seed": 3,
                 "train.lr": np.float64(1e-3), "train": {"carry": True, "resume": np.bool_(False)},
                 "eval.lengths": np.array([16, 32]), "data": {"corpus": Path("a") / "b"}}
        self.assertEqual(_settings.words_of(given),
                         ["model.width=64", "model.layers=mamba,attention", "seed=3",
                          "train.lr=0.001", "train.carry=true", "train.resume=false",
                          "eval.lengths=16,32", "data.corpus=a/b"])
        with self.refused(longshot.UsageError, "no text"):
            _settings.words_of({3: 4})
        with self.refused(longshot.UsageError, "zero byte"):
            _settings.array_of(["a=\0"])


class Training(fixture.Case):
    def test_steps(self):
        seen = []
        out = fixture.folder() / "steps"
        result = longshot.train(fixture.recipe(), out=out, on_step=seen.append)
        self.assertEqual([s["step"] for s in seen], list(range(1, 21)))
        self.assertEqual((result["step"], result["stopped"], result.rows), (20, False, seen))
        self.assertEqual(result["folder"], str(out))
        self.assertEqual(longshot.open(out).step, 20)
        json.dumps(result)
        self.assertIn("<svg", result._repr_html_())
        self.assertEqual(result.curves()["loss"][0], list(range(1, 21)))
        with self.refused(longshot.UsageError, "run"):
            longshot.train(fixture.recipe(train={"lr": 2e-3}), out=out)

    def test_stop_and_go_on(self):
        out = fixture.folder() / "stopped"
        first = longshot.train(fixture.recipe(), out=out, on_step=lambda s: s["step"] == 7)
        self.assertEqual((first["stopped"], first["step"]), (True, 7))

        def fail(step):
            if step["step"] == 11:
                raise LookupError("own trouble")

        with self.assertRaisesRegex(LookupError, "own trouble"):
            longshot.train(fixture.recipe(), out=out, on_step=fail)
        last = longshot.train(fixture.recipe(), out=out)
        self.assertEqual((last["resumed"], last["step"]), (11, 20))
        whole = longshot.train(fixture.recipe(), out=fixture.folder() / "whole")
        self.assertEqual(last["loss"], whole["loss"])

    def test_callback_calls_back(self):
        engine = longshot.Engine()

        def bad(_step):
            longshot.open(fixture.run(), engine=engine)

        with self.refused(longshot.UsageError, "callback"):
            longshot.train(fixture.recipe(), out=fixture.folder() / "back", on_step=bad,
                           engine=engine)

    def test_recipe_file(self):
        path = fixture.folder() / "recipe.yaml"
        path.write_text("model: {layers: 1, width: 16, length: 16}\nmixer: {heads: 2}\n"
                        "data: {corpus: text.txt}\ntrain: {steps: 20, batch: 2}\n")
        before = os.getcwd()
        os.chdir(fixture.folder())
        try:
            result = longshot.train(path, {"train.steps": 3}, out="from-file")
        finally:
            os.chdir(before)
        self.assertEqual(result["step"], 3)
        with self.refused(longshot.UsageError, "stepz"):
            longshot.train(path, {"train.stepz": 3}, out="never")
        with self.assertRaises(longshot.Error):
            longshot.train("nowhere.yaml")

    def test_interrupt(self):
        """Ctrl-C: KeyboardInterrupt, soon, with a checkpoint; the same call goes on."""
        out = fixture.folder() / "interrupted"
        recipe = fixture.recipe(train={"steps": 1_000_000})
        recipe["data"]["corpus"] = str(recipe["data"]["corpus"])
        code = (f"import longshot\nprint('begun', flush=True)\ntry:\n"
                f"    longshot.train({recipe!r}, out={str(out)!r}, on_step=None)\n"
                "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
                f"print(longshot.open({str(out)!r}).step)\n")
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "begun\n")
        for _ in range(300):
            if (out / "checkpoints").exists() and any((out / "checkpoints").iterdir()):
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=60)
        self.assertEqual(said.split("\n")[0], "interrupted")
        self.assertGreater(int(said.split("\n")[1]), 0)
        self.assertEqual(child.returncode, 0)

    def test_late_interrupt(self):
        """A stop that came when nothing ran any more ends no later training."""
        engine = longshot.Engine()
        engine._late_stop = True
        longshot._c.library().longshot_stop(engine.handle.open)
        result = longshot.train(fixture.recipe(), out=fixture.folder() / "late", engine=engine)
        self.assertEqual(result["step"], 20)


class Evaluation(fixture.Case):
    def test_as_the_program(self):
        lengths = {"eval.lengths": [16, 32, 64], "eval.protocol": ["nonoverlap", "slide"]}
        result = longshot.eval(fixture.run(), lengths)
        printed = json.loads(fixture.program("eval", fixture.run(), "eval.lengths=16,32,64",
                                             "eval.protocol=nonoverlap,slide", "--json"))
        timed = ("seconds", "tokens_per_second")
        for mine, theirs in zip(result["results"], printed["results"], strict=True):
            for key in timed:
                mine.pop(key), theirs.pop(key)
            self.assertEqual(mine, theirs)
        self.assertEqual(len(result.curves()), 2)
        self.assertIn("<table>", result._repr_html_())

    def test_refusals(self):
        with self.refused(longshot.UsageError, "protocol"):
            longshot.eval(fixture.run(), {"eval.protocol": "no"})
        with self.refused(longshot.InputError, "nowhere"):
            longshot.eval("nowhere")
        with self.refused(longshot.UsageError, "empty|no row"):
            longshot.eval(fixture.run(), {"eval.lengths": 16}).curves("nothing")

    def test_tables(self):
        result = longshot.eval(fixture.run(), {"eval.lengths": [16, 32]})
        try:
            import pandas
        except ImportError:
            with self.refused(longshot.UsageError, "pandas"):
                result.to_pandas()
        else:
            self.assertIsInstance(result.to_pandas(), pandas.DataFrame)
        try:
            import matplotlib
        except ImportError:
            with self.refused(longshot.UsageError, "matplotlib"):
                result.plot()
        else:
            matplotlib.use("Agg")
            self.assertEqual(result.plot().get_xlabel(), "length")


class Studies(fixture.Case):
    def test_study(self):
        path = fixture.folder() / "study.yaml"
        path.write_text(
            f"""title: Two arms
seeds: [1]
model: {{layers: 1, width: 16, length: 16}}
mixer: {{heads: 2}}
data: {{corpus: {fixture.folder() / "text.txt"}}}
train: {{steps: 10, batch: 2}}
eval: {{protocol: nonoverlap, lengths: [16, 32], tokens: 256}}
arms:
  rope: {{model.position: rope}}
  alibi: {{model.position: alibi}}
""")
        lines = []
        out = fixture.folder() / "study"
        result = longshot.study(path, out=out, program=fixture.PROGRAM,
                                on_progress=lambda *told: lines.append(told))
        self.assertEqual(lines[-1][1], lines[-1][2])
        self.assertEqual([row["arm"] for row in result.rows], ["rope", "rope", "alibi", "alibi"])
        self.assertEqual(set(result.curves()), {"rope, nonoverlap", "alibi, nonoverlap"})
        self.assertIn("rope", result["summary"])
        self.assertIn("<iframe", result._repr_html_())
        self.assertEqual({k: v for k, v in result.items() if k != "summary"},
                         json.loads((out / "results.json").read_text()))


if __name__ == "__main__":
    unittest.main()
