"""The module Mamba2 (state-spaces/mamba) with use_mem_eff_path=False, and Mamba2ForCausalLM of transformers.

The module's Triton kernels need a GPU; the repository's own references take their place:
ssd_selective_scan with selective_scan_ref for the scan, rms_norm_ref for the gated norm. Triton must be
installed for the import alone.
"""
import json
import os

import common

torch = common.in_double()


def modules():
    """mamba_ssm.modules.mamba2 with references in place of kernels, and the last states of its scans."""
    common.bare("mamba_ssm", os.path.join(common.public("mamba"), "mamba_ssm"))
    common.absent("selective_scan_cuda", "causal_conv1d", "mamba_ssm.ops.triton.selective_state_update")
    import mamba_ssm.ops.selective_scan_interface as interface
    import mamba_ssm.ops.triton.layernorm_gated as norm
    import mamba_ssm.modules.mamba2 as code
    import mamba_ssm.ops.triton.ssd_combined as ssd
    states = []

    def scan(*given, **options):
        y, state = interface.selective_scan_ref(*given, **options, return_last_state=True)
        states.append(state)
        return y

    def chunk_scan(*given, chunk_size, seq_idx, cu_seqlens, return_final_states, return_varlen_states, **options):
        return ssd.ssd_selective_scan(*given, **options)

    interface.selective_scan_fn = scan
    norm.rmsnorm_fn = norm.rms_norm_ref
    code.mamba_chunk_scan_combined = chunk_scan
    return code, states


def block(note, B, T, step, **config):
    def fill(case):
        code, states = modules()
        module = code.Mamba2(**config, use_mem_eff_path=False)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, config["d_model"])))
        outputs = {"y": module(x)}
        outputs["ssm_state"] = states[-1].reshape(B, module.nheads, module.headdim, module.d_state)
        if step:
            width = module.d_ssm + 2 * module.ngroups * module.d_state
            kept = [torch.zeros(B, width, module.d_conv), torch.zeros_like(outputs["ssm_state"])]
            with torch.no_grad():
                rows = [module.step(x[:, t:t + 1], *kept)[0] for t in range(T)]
            outputs.update(step=torch.cat(rows, 1), conv_state=kept[0])
        case.tell("state-spaces/mamba", "mamba_ssm/modules/mamba2.py", dict(config, B=B, T=T), note)
        case.gradients(outputs, weights, {"x": x}, silent=("ssm_state", "step", "conv_state"))
    return fill


def language_model(B, T, **config):
    """The released package, as it is installed; from 5.23 on its norm is by group."""
    def fill(case):
        import transformers
        settings = transformers.Mamba2Config(**config)
        model = transformers.Mamba2ForCausalLM(settings).eval()
        weights = case.weights(model)
        tokens = (torch.tensor(case.given["in.tokens"]).long() if case.given is not None
                  else torch.randint(config["vocab_size"], (B, T)))
        with torch.no_grad():
            case.put("out.y", model(tokens).logits)
        case.put("in.tokens", tokens)
        for name, value in weights.items():
            case.put("w." + name, value)
        case.about = {"repo": "huggingface/transformers", "file": "src/transformers/models/mamba2",
                      "commit": f"transformers {transformers.__version__} (released package)",
                      "config": json.dumps(config), "kind": "official", "dtype": "torch.float64"}
    return fill


common.main({  # transformers first: where it finds mamba_ssm it takes its kernels
    "hf-mamba2": language_model(2, 29, vocab_size=32, hidden_size=16, state_size=6, head_dim=8, num_heads=4, n_groups=1,
                                num_hidden_layers=2, chunk_size=8, expand=2, tie_word_embeddings=True),
    "hf-mamba2-groups": language_model(1, 18, vocab_size=53, hidden_size=24, state_size=5, head_dim=8,
                                       num_heads=6, n_groups=2, num_hidden_layers=2, chunk_size=8, expand=2,
                                       time_step_limit=(0.0, 3.0), tie_word_embeddings=False),
    "mamba2-block": block("Mamba2.forward; out.step = step() from zero states", 2, 48, True, d_model=16, d_state=8,
                          headdim=8, chunk_size=16),
    "mamba2-block-groups": block("two groups, steps held within dt_limit", 1, 45, False, d_model=24, d_state=6,
                                 headdim=6, ngroups=2, expand=2, d_conv=4, chunk_size=15, dt_limit=(0.02, 0.3)),
})
