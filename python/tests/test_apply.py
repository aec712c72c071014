"""One mechanism alone on arrays, against values of public code (tests/golden/README.md)."""
import unittest

import fixture
import longshot
import numpy as np
from longshot import _safetensors

HOW = {"heads": 2, "bias": True, "position": "xpos"}


class Apply(fixture.Case):
    @classmethod
    def setUpClass(cls):
        cls.file = fixture.GOLDEN / "xpos-attn.safetensors"
        cls.golden = _safetensors.read(cls.file)
        cls.weights = {k[2:]: v for k, v in cls.golden.items() if k.startswith("w.")}

    def test_outputs_and_gradients(self):
        golden = self.golden
        got = longshot.apply("attention", {"x": golden["in.x"], "cot": golden["cot"]},
                             self.weights, **HOW)
        np.testing.assert_allclose(got["y"], golden["out.y"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(got["grad.x"], golden["grad.in.x"], rtol=0, atol=1e-10)
        np.testing.assert_allclose(got["grad.out.weight"], golden["grad.w.out_proj.weight"],
                                   rtol=0, atol=1e-10)
        cut = longshot.apply("attention", golden["in.x"], self.weights, cut=[1, 7], **HOW)
        self.assertNotIn("grad.x", cut)
        np.testing.assert_allclose(cut["y"], golden["out.y"], rtol=0, atol=1e-12)

    def test_narrow(self):
        half = {k: v.astype(np.float32) for k, v in self.weights.items()}
        got = longshot.apply("attention", self.golden["in.x"].astype(np.float32), half,
                             dtype="f32", **HOW)
        np.testing.assert_allclose(got["y"], self.golden["out.y"], rtol=0, atol=1e-5)

    def test_compare(self):
        rows = longshot.compare("mixer", self.file, mixer="attention", **HOW)
        self.assertTrue(len(rows) > 5 and all(row["good"] for row in rows))
        other = {**HOW, "position": "rope"}
        rows = longshot.compare("mixer", self.file, mixer="attention", **other)
        self.assertFalse(all(row["good"] for row in rows))

    def test_refusals(self):
        for mixer, weights, more in (("atention", self.weights, {}), ("attention", {}, {}),
                                     ("attention", self.weights, {"windw": 3})):
            with self.assertRaises(longshot.Error):
                longshot.apply(mixer, self.golden["in.x"], weights, **HOW, **more)
        with self.refused(longshot.UsageError, "complex"):
            longshot.apply("attention", self.golden["in.x"] * 1j, self.weights, **HOW)


if __name__ == "__main__":
    unittest.main()
