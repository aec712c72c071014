"""Models, streams, tokenizers and generation from Python."""
import gc
import threading
import time
import unittest

import fixture
import longshot
import numpy as np
from fixture import GOLDEN
from longshot import _safetensors


class Models(fixture.Case):
    @classmethod
    def setUpClass(cls):
        cls.model = longshot.open(fixture.run())
        cls.ids = cls.model.tokenize("document 1, line 3: what follows is much like it")

    def test_facts(self):
        model = self.model
        self.assertEqual((model.vocabulary, model.classes, model.step), (256, 0, 20))
        self.assertEqual(model.trained_length, 16)
        self.assertIn("width", model.config)
        self.assertIn("trained_length=16", repr(model))

    def test_text(self):
        self.assertEqual(self.ids.dtype, np.int32)
        self.assertEqual(self.model.detokenize(self.ids),
                         "document 1, line 3: what follows is much like it")
        self.assertEqual(longshot.Tokenizer("byte").decode_bytes([0xE2, 0x82]), b"\xe2\x82")

    def test_loss_is_of_logits(self):
        logits = self.model.logits(self.ids).astype(np.float64)
        self.assertEqual(logits.shape, (self.ids.size, 256))
        all_log = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1))
        all_log += logits.max(-1)
        wanted = (all_log - logits[np.arange(self.ids.size), np.roll(self.ids, -1)])[:-1]
        np.testing.assert_allclose(self.model.loss(self.ids), wanted, rtol=1e-5)

    def test_batches(self):
        both = np.stack([self.ids, self.ids[::-1]])
        loss = self.model.loss(both)
        self.assertEqual(loss.shape, (2, self.ids.size - 1))
        np.testing.assert_allclose(loss[0], self.model.loss(self.ids), rtol=1e-6)
        np.testing.assert_allclose(loss[1], self.model.loss(self.ids[::-1]), rtol=1e-6)
        self.assertEqual(self.model.logits(both).shape, (2, self.ids.size, 256))

    def test_arrays_are_not_copied(self):
        out = np.zeros((1, self.ids.size - 1), np.float32)
        got = self.model.loss(self.ids, out=out)
        self.assertTrue(np.shares_memory(got, out) and out.any())
        self.assertIs(longshot._arrays.ids_of(self.ids), self.ids)
        held = memoryview(self.ids)
        self.assertTrue(np.shares_memory(longshot._arrays.ids_of(held), self.ids))

        class OnlyDlpack:
            def __dlpack__(self, **more):
                return Models.ids.__dlpack__(**more)

            def __dlpack_device__(self):
                return Models.ids.__dlpack_device__()

        self.assertTrue(np.shares_memory(longshot._arrays.ids_of(OnlyDlpack()), self.ids))
        np.testing.assert_array_equal(self.model.loss(OnlyDlpack()), out[0])
        np.testing.assert_array_equal(np.from_dlpack(got), out[0])

    def test_refusals(self):
        model, usage, bad = self.model, longshot.UsageError, longshot.InputError
        with self.refused(bad, "nowhere"):
            longshot.open("nowhere")
        with self.refused(usage, "dtpe"):
            longshot.open(fixture.run(), dtpe="f32")
        with self.refused(usage, "plaid"):
            longshot.open(fixture.run(), device="plaid")
        for ids, kind, words in (([[[1]]], usage, "dimensions"), ([1.5], usage, "integers"),
                                 ([], usage, "0 tokens"), ([2**40], usage, "32 bits"),
                                 ([1, 999], bad, "999"), ([-5, 1], bad, "-5")):
            with self.refused(kind, words):
                model.logits(ids)
        with self.refused(usage, "writable"):
            model.loss(self.ids, out=np.zeros(self.ids.size - 1))
        with self.refused(usage, "values"):
            model.loss(self.ids, out=np.zeros(3, np.float32))
        with self.refused(usage, "temperature"):
            list(model.generate("d", 3, temperature=-1))
        with self.refused(usage, "tokens=0"):
            model.generate("d", 0)
        self.assertTrue(issubclass(usage, ValueError) and usage("x").exit_code == 2)
        self.assertTrue(usage("x").hint)

    def test_closing(self):
        model = longshot.open(fixture.run(), engine=longshot.Engine())
        stream, tokenizer = model.stream(), model.tokenizer
        model.engine.close()
        model.close()
        model.close()
        with self.refused(longshot.UsageError, "closed"):
            model.loss(self.ids)
        self.assertEqual(stream.feed(self.ids[:4]).shape, (256,))  # it holds what it needs
        self.assertEqual(tokenizer.vocabulary, 256)
        round_trip = [model, stream, tokenizer]
        round_trip.append(round_trip)  # forgotten in whatever order
        del model, stream, tokenizer, round_trip
        gc.collect()

    def test_threads(self):
        """Others run while it computes, and calls of several threads wait for each other."""
        ids = np.resize(self.ids, 12_000).astype(np.int32)
        ticks, results, over = [], [], threading.Event()

        def tick():
            while not over.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.001)

        def score():
            results.append(self.model.loss(ids[:2000]))

        ticker = threading.Thread(target=tick)
        scorers = [threading.Thread(target=score) for _ in range(3)]
        ticker.start()
        begin = time.perf_counter()
        self.model.loss(ids)
        end = time.perf_counter()
        over.set()
        ticker.join()
        inside = sum(begin < at < end for at in ticks)
        self.assertGreater(inside, (end - begin) / 0.05)
        for one in scorers:
            one.start()
        for one in scorers:
            one.join()
        self.assertTrue(all((one == results[0]).all() for one in results) and len(results) == 3)


class Streams(fixture.Case):
    @classmethod
    def setUpClass(cls):
        cls.model = longshot.open(fixture.run())
        cls.ids = cls.model.tokenize("document 1, line 3: what follows is much like it")

    def test_any_cut(self):
        whole = self.model.logits(self.ids)
        stream = self.model.stream(capacity=64)
        parts = [stream.logits(part) for part in np.split(self.ids, [1, 2, 9, 30])]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-5, atol=1e-6)
        self.assertEqual(stream.position, self.ids.size)
        stream.reset()
        self.assertIsNone(stream.feed(self.ids[:-1], logits=False))
        np.testing.assert_allclose(stream.feed(self.ids[-1]), whole[-1], rtol=1e-5, atol=1e-6)
        stream.reset()
        np.testing.assert_allclose(stream.loss(self.ids[:-1], self.ids[1:]),
                                   self.model.loss(self.ids), rtol=1e-5)
        self.assertGreater(stream.nbytes, 0)

    def test_fork_and_save(self):
        stream = self.model.stream(batch=2, capacity=64)
        two = np.stack([self.ids, self.ids[::-1]])
        stream.feed(two[:, :20])
        fork, saved = stream.fork(), stream.save()
        first = stream.feed(two[:, 20:])
        self.assertEqual(first.shape, (2, 256))
        np.testing.assert_array_equal(fork.feed(two[:, 20:]), first)
        other = self.model.stream(batch=2, capacity=64)
        other.load(saved)
        self.assertEqual(other.position, 20)
        stream.close()
        np.testing.assert_array_equal(other.feed(two[:, 20:]), first)
        with self.refused(longshot.InputError, ""):
            other.load(saved[:-3])
        with self.refused(longshot.UsageError, "3 sequences"):
            other.feed(np.zeros((3, 2), np.int32))
        with self.refused(longshot.UsageError, "capacity|room|64"):
            other.feed(np.zeros((2, 60), np.int32))


class Generation(fixture.Case):
    def test_as_the_program(self):
        for path, tokens in ((fixture.run(), 20), (GOLDEN / "checkpoints" / "gpt2", 12),
                             (GOLDEN / "checkpoints" / "t5", 12)):
            model = longshot.open(path)
            for how in ({"temperature": 0.0}, {"temperature": 1.0, "top_k": 9, "top_p": 0.9}):
                text = "".join(map(str, model.generate("what follows", tokens, seed=5, **how)))
                words = [f"{key}={value}" for key, value in how.items()]
                wanted = fixture.program("generate", path, "prompt=what follows",
                                         f"tokens={tokens}", "seed=5", *words)
                self.assertTrue(text)
                self.assertIn(wanted.rstrip("\n"), ("what follows" + text, text))

    def test_between_tokens(self):
        model = longshot.open(fixture.run())
        once = list(model.generate("what", 10, temperature=1, seed=3))
        ids = model.tokenize("what follows is")
        again = []
        for token in model.generate(model.tokenize("what"), 10, temperature=1, seed=3):
            model.loss(ids)
            again.append(token)
        self.assertEqual(once, again)


class PublicCheckpoints(fixture.Case):
    """Values of the checkpoints' own code: tests/golden/README.md."""

    def held_against(self, name, path, **more):
        expected = _safetensors.read(GOLDEN / "checkpoints" / name / "expected.safetensors")
        model = longshot.open(GOLDEN / "checkpoints" / path, **more)
        ids = expected["a.input_ids"]
        real = expected.get("a.attention_mask", np.ones_like(ids)) > 0  # the rest is padding
        np.testing.assert_allclose(model.logits(ids)[real], expected["a.logits64"][real], rtol=0,
                                   atol=2e-5)

    def test_hugging_face(self):
        self.held_against("gpt2", "gpt2", dtype="f32")
        self.held_against("gemma2", "gemma2", dtype="f32")

    def test_gguf(self):
        self.held_against("gguf-gpt2", "gguf-gpt2/model.gguf")

    def test_encoder(self):
        expected = _safetensors.read(GOLDEN / "checkpoints" / "t5" / "expected.safetensors")
        model = longshot.open(GOLDEN / "checkpoints" / "t5", dtype="f32")
        source = np.where(expected["a.attention_mask"] > 0, expected["a.input_ids"], -1)
        tokens = expected["a.decoder_input_ids"]
        stream = model.stream(batch=2, capacity=tokens.shape[1], source=source.shape[1])
        stream.read(source)
        np.testing.assert_allclose(stream.logits(tokens), expected["a.logits64"], rtol=0, atol=2e-5)
        with self.refused(longshot.UsageError, "opened for"):
            model.stream(source=3).read([1])


class Cuda(fixture.Case):
    def test_as_the_processor(self):
        try:
            engine = longshot.Engine("cuda")
        except longshot.Error as why:
            self.skipTest(str(why))
        here = longshot.open(fixture.run(), dtype="f32")
        there = longshot.open(fixture.run(), dtype="f32", engine=engine)
        ids = here.tokenize("document 1, line 3: what follows is much like it")
        np.testing.assert_allclose(there.loss(ids), here.loss(ids), rtol=1e-4)
        self.assertEqual(list(there.generate("what", 20)), list(here.generate("what", 20)))


if __name__ == "__main__":
    unittest.main()
