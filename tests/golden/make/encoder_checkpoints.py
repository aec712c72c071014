"""Tiny folders of encoders and encoder-decoders as transformers saves them, with the values that it
computes in double precision: encoder_checkpoints.py OUT [NAME ...].

Every parameter is drawn, so that none is 0, 1 or equal to another; the float32 file that is saved is
what both sides read."""
import contextlib
import os
import sys

import torch
import transformers as t
from safetensors.torch import save_file

torch.set_num_threads(1)
TEXT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
            vocab_size=53, type_vocab_size=2)
T5 = dict(d_model=24, d_kv=7, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3, vocab_size=53,
          relative_attention_num_buckets=8, relative_attention_max_distance=12,
          decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)


@contextlib.contextmanager
def promoted():
    """Whatever the library computes in float32 whatever the model's type, it computes in float64."""
    narrow, to_float = torch.float32, torch.Tensor.float
    torch.float32, torch.Tensor.float = torch.float64, torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.Tensor.float = narrow, to_float


def draw(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            scale = 0.05 if p.dim() == 1 else 0.6 / p.shape[-1] ** 0.5
            value = torch.randn(p.shape, generator=generator) * scale
            if p.dim() == 1 and name.endswith("weight"):
                value += 1
            p.copy_(value)
    return generator


def save(folder, model, tensors):
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder)
    about = {"versions": f"transformers {t.__version__} torch {torch.__version__.split('+')[0]}",
             "model": type(model).__name__}
    save_file({k: v.detach().contiguous() for k, v in tensors.items()},
              os.path.join(folder, "expected.safetensors"), metadata=about)


def gradients(model, loss, tensors):
    model.zero_grad()
    loss.backward()
    tensors["loss"] = loss.detach()
    for name, p in model.named_parameters():
        if p.grad is not None:
            tensors["grad." + name] = p.grad.clone()


def padded_mask(lengths, longest, left=False):
    mask = torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, n in enumerate(lengths):
        mask[row, longest - n if left else 0:longest if left else n] = 1
    return mask


def encoder(folder, cls, config, length, short, seed, types=True, low=3, key="input_ids"):
    model = cls(config)
    g = draw(model, seed)
    model = model.to(torch.float64).eval()
    V = config.vocab_size
    ids = torch.randint(low, V, (2, length), generator=g)
    mask = padded_mask([length, short], length)
    ids[mask == 0] = getattr(config, "pad_token_id", 0) or 0
    tensors = {f"a.{key}": ids, "a.attention_mask": mask}
    given = {key: ids, "attention_mask": mask}
    if short == length:  # Nystromformer fails with a mask [B, T]
        given.pop("attention_mask")
    if types:
        kinds = (torch.arange(length) > length // 2).long().repeat(2, 1)
        given["token_type_ids"] = tensors["a.token_type_ids"] = kinds
    with promoted():
        out = model(**given)
    if "logits" in out:
        logits = out.logits
        labels = ids.clone()
        labels[(torch.rand(ids.shape, generator=g) > 0.3) | (mask == 0)] = -100
        tensors["labels"] = labels
        tensors["a.logits64"] = logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, V), labels.reshape(-1))
        gradients(model, loss, tensors)
    else:
        tensors["a.hidden64"] = out.last_hidden_state
    save(folder, model.to(torch.float32), tensors)


def encoder_decoder(folder, cls, config, length, short, seed, left=True):
    model = cls(config)
    g = draw(model, seed)
    model = model.to(torch.float64).eval()
    V = config.vocab_size
    tensors = {}
    for case in "ab" if left else "a":
        ids = torch.randint(2, V, (2, length), generator=g)
        mask = padded_mask([length, short], length, case == "b")
        ids[mask == 0] = 0
        answer = torch.randint(2, V, (2, 7), generator=g)
        answer[:, 0] = 0
        with promoted():
            out = model(input_ids=ids, attention_mask=mask, decoder_input_ids=answer)
        tensors.update({f"{case}.input_ids": ids, f"{case}.attention_mask": mask,
                        f"{case}.decoder_input_ids": answer, f"{case}.logits64": out.logits})
        if case == "a":
            labels = torch.roll(answer, -1, 1)
            labels[:, -1] = -100
            tensors["labels"] = labels
            gradients(model, torch.nn.functional.cross_entropy(
                out.logits.reshape(-1, V), labels.reshape(-1)), tensors)
            tokens = torch.zeros(1, 1, dtype=torch.long)
            for _ in range(8):
                more = model(input_ids=ids[:1], decoder_input_ids=tokens).logits[:, -1].argmax(-1)
                tokens = torch.cat([tokens, more[:, None]], 1)
            tensors["greedy"] = tokens
    save(folder, model.to(torch.float32), tensors)


CASES = {
    "bert": lambda f: encoder(f, t.BertForMaskedLM, t.BertConfig(
        **TEXT, max_position_embeddings=40, hidden_act="relu"), 19, 11, 1),
    "bert-rows": lambda f: encoder(f, t.BertModel, t.BertConfig(
        **TEXT, max_position_embeddings=40), 19, 11, 2),
    "bert-untied": lambda f: encoder(f, t.BertForMaskedLM, t.BertConfig(
        **TEXT, max_position_embeddings=40, tie_word_embeddings=False), 19, 11, 14),
    "bert-pretraining": lambda f: encoder(f, t.BertForMaskedLM, t.BertConfig(
        **{**TEXT, "type_vocab_size": 1}, max_position_embeddings=40, hidden_act="gelu_new"),
        19, 11, 15, types=False),
    "roberta": lambda f: encoder(f, t.RobertaForMaskedLM, t.RobertaConfig(
        **{**TEXT, "type_vocab_size": 1}, max_position_embeddings=40, pad_token_id=1), 19, 11, 3,
        types=False),
    "xlm-roberta": lambda f: encoder(f, t.XLMRobertaForMaskedLM, t.XLMRobertaConfig(
        **{**TEXT, "type_vocab_size": 1}, max_position_embeddings=40, pad_token_id=1), 19, 11, 17,
        types=False),
    "camembert": lambda f: encoder(f, t.CamembertForMaskedLM, t.CamembertConfig(
        **{**TEXT, "type_vocab_size": 1}, max_position_embeddings=40, pad_token_id=1), 19, 11, 18,
        types=False),
    "longformer": lambda f: encoder(f, t.LongformerForMaskedLM, t.LongformerConfig(
        **TEXT, max_position_embeddings=60, attention_window=[8, 4], pad_token_id=1), 24, 15, 4),
    "big_bird": lambda f: encoder(f, t.BigBirdForMaskedLM, t.BigBirdConfig(
        **TEXT, max_position_embeddings=80, block_size=4, num_random_blocks=1,
        attention_type="block_sparse", rescale_embeddings=True), 44, 37, 5),
    "big_bird-odd": lambda f: encoder(f, t.BigBirdForMaskedLM, t.BigBirdConfig(
        **TEXT, max_position_embeddings=80, block_size=4, num_random_blocks=2,
        attention_type="block_sparse"), 57, 43, 16),
    "big_bird-full": lambda f: encoder(f, t.BigBirdForMaskedLM, t.BigBirdConfig(
        **TEXT, max_position_embeddings=80, block_size=4, attention_type="original_full"),
        30, 21, 6),
    "nystromformer": lambda f: encoder(f, t.NystromformerForMaskedLM, t.NystromformerConfig(
        **TEXT, max_position_embeddings=40, num_landmarks=4, segment_means_seq_len=24,
        conv_kernel_size=5), 24, 24, 7),
    "perceiver": lambda f: encoder(f, t.PerceiverForMaskedLM, t.PerceiverConfig(
        num_latents=6, d_latents=24, d_model=16, num_blocks=2, num_self_attends_per_block=2,
        num_self_attention_heads=4, num_cross_attention_heads=2, qk_channels=16, v_channels=24,
        cross_attention_widening_factor=2, vocab_size=53, max_position_embeddings=20), 20, 13, 8,
        types=False, key="inputs"),
    "t5-1.1": lambda f: encoder_decoder(f, t.T5ForConditionalGeneration, t.T5Config(
        **T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), 14, 9, 9),
    "t5-silu": lambda f: encoder_decoder(f, t.T5ForConditionalGeneration, t.T5Config(
        **T5, feed_forward_proj="gated-silu"), 14, 9, 10),
    "umt5": lambda f: encoder_decoder(f, t.UMT5ForConditionalGeneration, t.UMT5Config(**T5),
                                      14, 9, 11),
    "mt5": lambda f: encoder_decoder(f, t.MT5ForConditionalGeneration, t.MT5Config(**T5),
                                     14, 9, 19),
    "longt5-local": lambda f: encoder_decoder(f, t.LongT5ForConditionalGeneration, t.LongT5Config(
        **T5, local_radius=3, feed_forward_proj="gated-gelu"), 30, 21, 12, left=False),
    "longt5-tglobal": lambda f: encoder_decoder(f, t.LongT5ForConditionalGeneration, t.LongT5Config(
        **T5, local_radius=3, global_block_size=4, encoder_attention_type="transient-global"),
        30, 21, 13, left=False),
}

if __name__ == "__main__":
    out, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        try:
            CASES[name](os.path.join(out, name))
            print(name)
        except Exception as error:  # the others are wanted all the same
            print(name, "FAILED", type(error).__name__, error)
