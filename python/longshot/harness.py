"""A model class for lm-evaluation-harness: longshot without a server.

    python -m longshot.harness --model longshot --model_args path=FOLDER --tasks lambada_openai

is `lm_eval` with the model class `longshot` registered. In a program of one's own it is enough to
import this module, and then to ask for model="longshot".

model_args: path (or pretrained): what longshot.open opens; max_length: tokens of a sequence (the
trained length); max_gen_toks (256); add_bos_token: whether what the tokenizer puts around a text
is added (as it says); device, threads, dtype. Texts that begin alike are computed once."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from ._model import open_model


def _log_probabilities(logits: np.ndarray) -> np.ndarray:
    wide = logits.astype(np.float64)
    most = wide.max(axis=-1, keepdims=True)
    return wide - most - np.log(np.exp(wide - most).sum(axis=-1, keepdims=True))


@register_model("longshot")
class Longshot(TemplateLM):
    """See the module."""

    def __init__(self, path: str | None = None, pretrained: str | None = None, device: str = "cpu",
                 threads: int = 0, dtype: str | None = None, max_length: int | None = None,
                 max_gen_toks: int = 256, add_bos_token: bool | None = None,
                 batch_size: Any = 1, max_batch_size: Any = None, **settings: Any) -> None:
        super().__init__()
        if (path is None) == (pretrained is None):
            raise ValueError("give path=FOLDER (or pretrained=FOLDER)")
        if dtype is not None:
            settings["dtype"] = dtype
        self.model = open_model(path or pretrained, settings, device=device or "cpu",
                                threads=threads)
        self.max_length = int(max_length or self.model.trained_length)
        self.max_gen_toks = int(max_gen_toks)
        self.add_bos_token = add_bos_token
        if self.model.tokenizer is None:
            raise ValueError("the model has no tokenizer")

    @property
    def eot_token_id(self) -> int:
        return self.model.tokenizer.end

    @property
    def prefix_token_id(self) -> int:
        around = self.model.tokenizer.encode("", template=True)
        return int(around[0]) if around.size else self.eot_token_id

    def tok_encode(self, string: str, add_special_tokens: bool | None = None,
                   **_: Any) -> list[int]:
        template = self.add_bos_token if add_special_tokens is None else add_special_tokens
        if add_special_tokens is None:
            template = (template is None or template) and not string.startswith(
                self.model.tokenizer.decode([self.prefix_token_id]))
        return self.model.tokenizer.encode(string, special=True, template=bool(template)).tolist()

    def _score(self, stream: Any, tokens: list[int]) -> tuple[float, bool]:
        """tokens[1:] after the stream and tokens[0]: their log-probability, and whether each was
        the likeliest."""
        rows = _log_probabilities(stream.logits(tokens[:-1]))
        wanted = np.asarray(tokens[1:])
        own = rows[np.arange(len(wanted)), wanted]
        return float(own.sum()), bool((rows.argmax(axis=-1) == wanted).all())

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False,
                              **_: Any) -> list[tuple[float, bool]]:
        answers: list[Any] = [None] * len(requests)
        by_context: dict[tuple[int, ...], list[int]] = {}
        pieces = []
        for index, (_, context, continuation) in enumerate(requests):
            whole = (context + continuation)[-(self.max_length + 1):]
            at = max(len(whole) - len(continuation), 1)
            pieces.append(whole[at - 1:])
            by_context.setdefault(tuple(whole[:at - 1]), []).append(index)
        for context, indices in tqdm(by_context.items(), disable=disable_tqdm,
                                     desc="loglikelihood"):
            room = len(context) + max(len(pieces[i]) for i in indices)
            with self.model.stream(capacity=room) as read:
                if context:
                    read.feed(list(context), logits=False)
                for index in indices:
                    with read.fork() as stream:
                        answers[index] = self._score(stream, pieces[index])
        for (text, _, _), answer in zip(requests, answers):
            if text is not None:
                self.cache_hook.add_partial("loglikelihood", text, answer)
        return answers

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        sums = []
        for request in tqdm(requests, disable=disable_tqdm, desc="loglikelihood_rolling"):
            windows = [make_disjoint_window(window) for window in get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id, max_seq_len=self.max_length, context_len=1)]
            scores = self._loglikelihood_tokens([(None, *window) for window in windows],
                                                disable_tqdm=True)
            sums.append(sum(score for score, _ in scores))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, sums[-1])
        return sums

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        texts = []
        for request in tqdm(requests, disable=disable_tqdm, desc="generate_until"):
            context, how = request.args
            stops = how.get("until", [])
            stops = [stops] if isinstance(stops, str) else list(stops)
            most = int(how.get("max_gen_toks", self.max_gen_toks))
            ids = self.tok_encode(context)[-max(self.max_length - most, 1):]
            draws = how.get("do_sample", how.get("temperature", 0) > 0)
            text = ""
            for token in self.model.generate(ids or [self.prefix_token_id], most,
                                             temperature=how.get("temperature", 0) if draws else 0,
                                             top_p=how.get("top_p", 0), top_k=how.get("top_k", 0)):
                text += str(token)
                ends = [text.index(stop) for stop in stops if stop and stop in text]
                if ends:
                    text = text[:min(ends)]
                    break
            texts.append(text)
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    sys.exit(cli_evaluate())
