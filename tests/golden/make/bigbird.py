"""BigBird (huggingface/transformers): BigBirdBlockSparseAttention, and the blocks that it draws in training."""
import re

import common

torch = common.in_double()
FILE = "src/transformers/models/big_bird/modeling_big_bird.py"


def layer(width, heads, block, random, seed):
    """A layer in training mode, and a list into which each run puts its random blocks."""
    BigBirdConfig = common.library().BigBirdConfig
    from transformers.models.big_bird import modeling_big_bird as code
    module = code.BigBirdBlockSparseAttention(
        BigBirdConfig(hidden_size=width, num_attention_heads=heads, block_size=block, num_random_blocks=random,
                      max_position_embeddings=4096), seed=seed).train()
    drawn, inner = [], module._create_rand_mask_from_inputs

    def kept(from_mask, to_mask, blocks, *rest):
        drawn.append(blocks[0])
        return inner(from_mask, to_mask, blocks, *rest)

    module._create_rand_mask_from_inputs = kept
    return module, drawn, code.BigBirdModel.create_masks_for_block_sparse_attn


def attend(module, masks, x, mask):
    blocked, band, rows, columns = masks(mask, module.block_size)
    return module(x, band_mask=band, from_mask=rows, to_mask=columns, from_blocked_mask=blocked,
                  to_blocked_mask=blocked)[0]


def attention(note, B, T, pads, width, heads, block, random, seed):
    def fill(case):
        module, drawn, masks = layer(width, heads, block, random, seed)
        weights = case.weights(module)
        x = common.leaf(case.number("in.x", (B, T, width)))
        mask = torch.ones(B, T)
        mask[-1, T - pads:] = 0
        y = attend(module, masks, x, mask)
        case.tell("huggingface/transformers", FILE, {"d": width, "heads": heads, "block_size": block, "B": B, "T": T,
                                                      "num_random_blocks": random, "seed": seed}, note)
        case.gradients({"y": y}, weights, {"x": x, "mask": mask, "rand_blocks": drawn[0]})
    return fill


def tables(note, names):
    def fill(case):
        for name in names:
            T, block, random, seed = map(int, re.fullmatch(r"T(\d+)_bs(\d+)_r(\d+)_seed(\d+)", name).groups())
            module, drawn, masks = layer(4, 2, block, random, seed)
            with torch.no_grad():
                attend(module, masks, torch.zeros(1, T, 4), torch.ones(1, T))
            case.put("out." + name, drawn[0])
        case.tell("huggingface/transformers", FILE, {}, note)
    return fill


common.main({
    "bigbird-train": attention("no output projection; sequence 1 has 6 pads (pad rows are 0)", 2, 56, 6, 16, 2, 4, 3, 3),
    "bigbird-few": attention("no more than 2r + 5 blocks, where the layer by itself still draws", 1, 42, 0, 8, 2, 2, 8, 3),
    "bigbird-randblocks": tables("blocks drawn in training", [
        "T1024_bs64_r3_seed0", "T1024_bs64_r3_seed5", "T1088_bs64_r3_seed2", "T1536_bs32_r3_seed7",
        "T2048_bs64_r3_seed0", "T3072_bs64_r3_seed1", "T4096_bs64_r3_seed0", "T4096_bs64_r3_seed11",
        "T896_bs64_r3_seed0"]),
    "bigbird-fewblocks": tables("blocks drawn in training for at most 2r + 5 blocks", [
        "T24_bs4_r3_seed2", "T32_bs4_r3_seed1", "T42_bs2_r8_seed3", "T52_bs2_r11_seed4", "T54_bs2_r11_seed0"]),
})
