"""Layers of huggingface/transformers, alone and inside booydar/recurrent-memory-transformer."""
import os

import common
from common import library

torch = common.in_double()


def pads_last(case, B, T, pads):
    mask = torch.ones(B, T)
    mask[-1, T - pads:] = 0
    return case.number("in.mask", (B, T), lambda shape: mask)


def additive(mask):
    """As these models prepare a mask of 0 and 1."""
    return (1.0 - mask[:, None, None, :]) * torch.finfo(torch.float64).min


def nystromformer(note, B, T, pads, **config):
    def fill(case):
        from_here = library().NystromformerConfig
        from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention
        settings = from_here(**config)
        module = NystromformerSelfAttention(settings).eval()
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, config["hidden_size"])))
        mask = pads_last(case, B, T, pads)
        y = module(x, attention_mask=additive(mask))[0]
        case.tell("huggingface/transformers", "src/transformers/models/nystromformer/modeling_nystromformer.py",
                  dict(config, B=B, T=T), note)
        case.gradients({"y": y}, weights, {"x": x, "mask": mask})
    return fill


def perceiver(note, B, T, width, pads, queries, **config):
    def fill(case):
        settings = library().PerceiverConfig(**config)
        from transformers.models.perceiver import modeling_perceiver as code
        module = code.PerceiverModel(settings, decoder=code.PerceiverBasicDecoder(
            settings, output_num_channels=width, output_index_dims=T, num_channels=queries, v_channels=config["d_latents"],
            qk_channels=queries, num_heads=2, use_query_residual=False, final_project=True,
            trainable_position_encoding_kwargs=dict(num_channels=queries, index_dims=T))).eval()
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, width)))
        mask = pads_last(case, B, T, pads)
        y = module(x, attention_mask=mask).logits
        case.tell("huggingface/transformers", "src/transformers/models/perceiver/modeling_perceiver.py",
                  dict(config, queries=queries, B=B, T=T), note)
        case.gradients({"y": y}, weights, {"x": x, "mask": mask})
    return fill


def perceiver_layer(note, B, T, latents, **config):
    def fill(case):
        settings = library().PerceiverConfig()
        from transformers.models.perceiver import modeling_perceiver as code
        module = code.PerceiverLayer(settings, is_cross_attention=True, **config).eval()
        weights = case.weights(module)
        z = common.leaf(case.number("in.z", (B, latents, config["q_dim"])))
        x = common.leaf(case.number("in.x", (B, T, config["kv_dim"])))
        case.tell("huggingface/transformers", "src/transformers/models/perceiver/modeling_perceiver.py",
                  dict(config, B=B, latents=latents, T=T), note)
        case.gradients({"y": module(z, inputs=x)[0]}, weights, {"x": x, "z": z})
    return fill


def recurrent_memory(note, B, T, model, memory, segment, align, **config):
    """RecurrentWrapper around a causal language model."""
    def fill(case):
        transformers = library()
        base = getattr(transformers, model + "LMHeadModel", None) or getattr(transformers, model + "ForCausalLM")
        settings = getattr(transformers, model + "Config")(**config)
        settings._attn_implementation = "eager"
        code = common.source(os.path.join(common.public("recurrent-memory-transformer"),
                                          "modeling_rmt/language_modeling.py"), "rmt_language_modeling")
        cell = code.MemoryCell(base(settings).eval(), memory)
        wrapper = code.RecurrentWrapper(cell, segment_size=segment, segment_alignment=align)
        weights = case.weights(wrapper)
        tokens = (torch.tensor(case.given["in.tokens"]) if case.given is not None
                  else torch.randint(config["vocab_size"], (B, T)))
        states = []
        cell.register_forward_hook(lambda module, given, result: states.append(result[1]))
        got = wrapper(tokens, labels=tokens)
        outputs = {"y": got.logits, "loss": got.loss.reshape(1)}
        outputs.update({f"memory{s}": state for s, state in enumerate(states)})
        case.tell("booydar/recurrent-memory-transformer + huggingface/transformers",
                  "modeling_rmt/language_modeling.py + " + base.__module__.replace(".", "/") + ".py",
                  dict(config, B=B, T=T, segment_size=segment, segment_alignment=align, num_mem_tokens=memory), note)
        case.gradients(outputs, weights, {"tokens": tokens}, silent=set(outputs) - {"y"})
    return fill


common.main({
    "nystrom-padded": nystromformer("NystromformerSelfAttention (no output projection); sequence 1 has 7 pads, which "
                                    "are masked in the landmarks' scores alone", 2, 24, 7, hidden_size=6,
                                    num_attention_heads=2, num_landmarks=4, segment_means_seq_len=24,
                                    conv_kernel_size=3),
    "perceiver-cross": perceiver_layer("PerceiverLayer as cross-attend: latents z (queries), inputs x (keys, values), "
                                       "query residual, MLP", 2, 45, 9, q_dim=10, kv_dim=14, qk_channels=8,
                                       v_channels=12, num_heads=2, widening_factor=3),
    "perceiver-io": perceiver("PerceiverModel: encoder with its latents, PerceiverBasicDecoder with learned queries; "
                              "sequence 1 has 5 pads", 2, 17, 5, 5, 4, num_latents=4, d_latents=6, d_model=5,
                              num_blocks=2, num_self_attends_per_block=2, num_self_attention_heads=3,
                              num_cross_attention_heads=2, qk_channels=6, v_channels=6,
                              self_attention_widening_factor=2, cross_attention_widening_factor=3),
    "rmt-gpt2-left": recurrent_memory("segments from the left", 2, 37, "GPT2", 3, 14, "left", vocab_size=29, n_embd=16,
                                      n_layer=2, n_head=2, n_positions=32),
    "rmt-llama-right": recurrent_memory("another model, the short segment first", 2, 23, "Llama", 2, 7, "right",
                                        vocab_size=19, hidden_size=16, intermediate_size=20, num_hidden_layers=1,
                                        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6,
                                        tie_word_embeddings=False),
})
