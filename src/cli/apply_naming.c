#include "cli/apply_naming.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- public code ---- */

static const struct {
    const char *name, *rules;
} known[] = {
    /* kimiyoung/transformer-xl, in PyTorch; weights also with the prefix of huggingface */
    {"transformer-xl", "w.*word_emb.emb_layers.0.weight = embed.weight\n"
                       "w.*word_emb.emb_layers.0.weight = embed.{c}.weight\n"
                       "w.*word_emb.emb_layers.{i}.weight = embed.{i}.weight\n"
                       "w.*word_emb.emb_projs.{i} = embed.{i}.project\n"
                       "w.*crit.out_layers.0.* = head.*\n"
                       "w.*crit.out_layers.0.* = head.{c}.*\n"
                       "w.*crit.out_layers.{i}.* = head.{i}.*\n"
                       "w.*crit.out_projs.{i} = head.{i}.project\n"
                       "w.*crit.cluster_weight = head.0.weight last reversed\n"
                       "w.*crit.cluster_weight = embed.0.weight last reversed\n"
                       "w.*crit.cluster_bias = head.0.bias last reversed\n"
                       "w.*pos_emb.inv_freq = -\n"
                       "w.*layers.{n}.dec_attn.layer_norm.* = layers.{n}.norm1.*\n"
                       "w.*layers.{n}.dec_attn.* = layers.{n}.mixer.*\n"
                       "w.*layers.{n}.pos_ff.layer_norm.* = layers.{n}.norm2.*\n"
                       "w.*layers.{n}.pos_ff.CoreNet.0.* = layers.{n}.ffn.up.*\n"
                       "w.*layers.{n}.pos_ff.CoreNet.3.* = layers.{n}.ffn.down.*\n"
                       "w.*r_w_bias = position.content_bias\n"
                       "w.*r_r_bias = position.distance_bias\n"
                       "out.hidden{s} = rows\n"
                       "out.nll{s} = loss\n"
                       "out.mem{s}.{n} = state layers.{n}.mixer.memory\n"},
    /* lucidrains/compressive-transformer-pytorch */
    {"compressive", "w.token_emb.weight = embed.weight\n"
                    "w.to_logits.1.* = head.*\n"
                    "w.pos_emb = layers.0.mixer.pos_emb\n"
                    "w.attn_layers.{n}.gru.weight_ih = layers.{n}.gate1.input.weight\n"
                    "w.attn_layers.{n}.gru.bias_ih = layers.{n}.gate1.input.bias\n"
                    "w.attn_layers.{n}.gru.weight_hh = layers.{n}.gate1.own.weight\n"
                    "w.attn_layers.{n}.gru.bias_hh = layers.{n}.gate1.own.bias\n"
                    "w.ff_layers.{n}.gru.weight_ih = layers.{n}.gate2.input.weight\n"
                    "w.ff_layers.{n}.gru.bias_ih = layers.{n}.gate2.input.bias\n"
                    "w.ff_layers.{n}.gru.weight_hh = layers.{n}.gate2.own.weight\n"
                    "w.ff_layers.{n}.gru.bias_hh = layers.{n}.gate2.own.bias\n"
                    "w.attn_layers.{n}.fn.norm.* = layers.{n}.norm1.*\n"
                    "w.attn_layers.{n}.fn.fn.* = layers.{n}.mixer.*\n"
                    "w.ff_layers.{n}.fn.norm.* = layers.{n}.norm2.*\n"
                    "w.ff_layers.{n}.fn.fn.w1.* = layers.{n}.ffn.up.*\n"
                    "w.ff_layers.{n}.fn.fn.w2.* = layers.{n}.ffn.down.*\n"
                    "out.logits{s} = logits\n"
                    "out.aux{s} = auxiliary\n"
                    "out.mem{s} = state layers.{n}.mixer.memory\n"
                    "out.cmem{s} = state layers.{n}.mixer.compressed\n"},
    /* huggingface GPT-2, also inside booydar/recurrent-memory-transformer */
    {"gpt2", "w.*wte.weight = embed.weight\n"
             "w.*wpe.weight = position.embedding\n"
             "w.*lm_head.weight = head.weight\n"
             "w.*ln_f.* = norm.*\n"
             "w.*h.{n}.ln_1.* = layers.{n}.norm1.*\n"
             "w.*h.{n}.ln_2.* = layers.{n}.norm2.*\n"
             "w.*h.{n}.attn.bias = -\n"
             "w.*h.{n}.attn.masked_bias = -\n"
             "w.*h.{n}.attn.* = layers.{n}.mixer.*\n"
             "w.*h.{n}.mlp.c_fc.weight = layers.{n}.ffn.up.weight turned\n"
             "w.*h.{n}.mlp.c_fc.bias = layers.{n}.ffn.up.bias\n"
             "w.*h.{n}.mlp.c_proj.weight = layers.{n}.ffn.down.weight turned\n"
             "w.*h.{n}.mlp.c_proj.bias = layers.{n}.ffn.down.bias\n"
             "out.loss = mean_loss\n"},
    /* lucidrains/memformer */
    {"memformer",
     "w.memory_slots = encoder.memory.start\n"
     "w.mem_updater.to_q.* = encoder.memory.q.*\n"
     "w.mem_updater.to_kv.* = encoder.memory.k.* + encoder.memory.v.*\n"
     "w.mem_updater.to_out.* = encoder.memory.out.*\n"
     "w.gru.weight_ih = encoder.memory.gru.input.weight\n"
     "w.gru.bias_ih = encoder.memory.gru.input.bias\n"
     "w.gru.weight_hh = encoder.memory.gru.slot.weight\n"
     "w.gru.bias_hh = encoder.memory.gru.slot.bias\n"
     "w.mem_ff.fn.norm.* = encoder.memory.norm.*\n"
     "w.mem_ff.fn.fn.net.0.* = encoder.memory.ffn.up.*\n"
     "w.mem_ff.fn.fn.net.2.* = encoder.memory.ffn.down.*\n"
     "w.encoder.token_emb.weight = encoder.embed.weight\n"
     "w.encoder.norm.* = encoder.norm.*\n"
     "w.encoder.layer_blocks.rel_pos_emb.relative_attention_bias.weight = encoder.position.bias\n"
     "w.encoder.layer_blocks.layers.{n}.0.fn.norm.* = encoder.layers.{n}.norm1.*\n"
     "w.encoder.layer_blocks.layers.{n}.0.fn.fn.* = encoder.layers.{n}.mixer.*\n"
     "w.encoder.layer_blocks.layers.{n}.1.fn.norm.* = encoder.layers.{n}.read.norm.*\n"
     "w.encoder.layer_blocks.layers.{n}.1.fn.fn.to_* = encoder.layers.{n}.read.*\n"
     "w.encoder.layer_blocks.layers.{n}.2.fn.norm.* = encoder.layers.{n}.norm2.*\n"
     "w.encoder.layer_blocks.layers.{n}.2.fn.fn.net.0.* = encoder.layers.{n}.ffn.up.*\n"
     "w.encoder.layer_blocks.layers.{n}.2.fn.fn.net.2.* = encoder.layers.{n}.ffn.down.*\n"
     "w.decoder.net.token_emb.weight = embed.weight\n"
     "w.decoder.net.norm.* = norm.*\n"
     "w.decoder.net.to_logits.* = head.*\n"
     "w.decoder.net.layer_blocks.rel_pos_emb.relative_attention_bias.weight = position.bias\n"
     "w.decoder.net.layer_blocks.layers.{n}.0.fn.norm.* = layers.{n}.norm1.*\n"
     "w.decoder.net.layer_blocks.layers.{n}.0.fn.fn.* = layers.{n}.mixer.*\n"
     "w.decoder.net.layer_blocks.layers.{n}.1.fn.norm.* = layers.{n}.norm_cross.*\n"
     "w.decoder.net.layer_blocks.layers.{n}.1.fn.fn.to_* = layers.{n}.cross.*\n"
     "w.decoder.net.layer_blocks.layers.{n}.2.fn.norm.* = layers.{n}.norm2.*\n"
     "w.decoder.net.layer_blocks.layers.{n}.2.fn.fn.net.0.* = layers.{n}.ffn.up.*\n"
     "w.decoder.net.layer_blocks.layers.{n}.2.fn.fn.net.2.* = layers.{n}.ffn.down.*\n"
     "in.src = source\n"
     "in.tgt = tokens\n"
     "out.enc{s} = segment encoded\n"
     "out.mem{s} = segment memory\n"
     "out.dec_logits{s} = logits\n"},
    /* huggingface Llama and Mistral */
    {"llama", "w.*embed_tokens.weight = embed.weight\n"
              "w.*lm_head.weight = head.weight\n"
              "w.*layers.{n}.input_layernorm.* = layers.{n}.norm1.*\n"
              "w.*layers.{n}.post_attention_layernorm.* = layers.{n}.norm2.*\n"
              "w.*layers.{n}.self_attn.* = layers.{n}.mixer.*\n"
              "w.*layers.{n}.mlp.gate_proj.* = layers.{n}.ffn.up.*\n"
              "w.*layers.{n}.mlp.up_proj.* = layers.{n}.ffn.up.* last\n"
              "w.*layers.{n}.mlp.down_proj.* = layers.{n}.ffn.down.*\n"
              "w.*norm.* = norm.*\n"
              "out.loss = mean_loss\n"},
    /* huggingface MPT */
    {"mpt", "w.*wte.weight = embed.weight\n"
            "w.*blocks.{n}.norm_{m}.* = layers.{n}.norm{m}.*\n"
            "w.*blocks.{n}.attn.* = layers.{n}.mixer.*\n"
            "w.*blocks.{n}.ffn.up_proj.* = layers.{n}.ffn.up.*\n"
            "w.*blocks.{n}.ffn.down_proj.* = layers.{n}.ffn.down.*\n"
            "w.*norm_f.* = norm.*\n"},
    /* state-spaces/mamba, and huggingface */
    {"mamba", "w.*embedding.weight = embed.weight\n"
              "w.*embeddings.weight = embed.weight\n"
              "w.*lm_head.weight = head.weight\n"
              "w.*layers.{n}.norm.* = layers.{n}.norm1.*\n"
              "w.*layers.{n}.mixer.* = layers.{n}.mixer.*\n"
              "w.*norm_f.* = norm.*\n"},
    /* microsoft/torchscale RetNet */
    {"retnet", "w.*embed_tokens.weight = embed.weight\n"
               "w.*output_projection.weight = head.weight\n"
               "w.*retnet_rel_pos.* = -\n"
               "w.*layers.{n}.retention.* = layers.{n}.mixer.*\n"
               "w.*layers.{n}.retention_layer_norm.* = layers.{n}.norm1.*\n"
               "w.*layers.{n}.final_layer_norm.* = layers.{n}.norm2.*\n"
               "w.*layers.{n}.ffn.fc1.* = layers.{n}.ffn.up.*\n"
               "w.*layers.{n}.ffn.gate.* = layers.{n}.ffn.up.* last\n"
               "w.*layers.{n}.ffn.fc2.* = layers.{n}.ffn.down.*\n"
               "w.*layer_norm.* = norm.*\n"},
    /* huggingface T5 and LongT5 */
    {"t5",
     "w.shared.weight = embed.weight\n"
     "w.lm_head.weight = head.weight\n"
     "w.encoder.final_layer_norm.* = encoder.norm.*\n"
     "w.encoder.block.{n}.layer.0.layer_norm.* = encoder.layers.{n}.norm1.*\n"
     "w.encoder.block.{n}.layer.0.SelfAttention.* = encoder.layers.{n}.mixer.*\n"
     "w.encoder.block.{n}.layer.0.LocalSelfAttention.* = encoder.layers.{n}.mixer.*\n"
     "w.encoder.block.{n}.layer.0.TransientGlobalSelfAttention.* = encoder.layers.{n}.mixer.*\n"
     "w.encoder.block.{n}.layer.1.layer_norm.* = encoder.layers.{n}.norm2.*\n"
     "w.encoder.block.{n}.layer.1.DenseReluDense.wi.* = encoder.layers.{n}.ffn.up.*\n"
     "w.encoder.block.{n}.layer.1.DenseReluDense.wi_0.* = encoder.layers.{n}.ffn.up.*\n"
     "w.encoder.block.{n}.layer.1.DenseReluDense.wi_1.* = encoder.layers.{n}.ffn.up.* last\n"
     "w.encoder.block.{n}.layer.1.DenseReluDense.wo.* = encoder.layers.{n}.ffn.down.*\n"
     "w.decoder.final_layer_norm.* = norm.*\n"
     "w.decoder.block.{n}.layer.0.layer_norm.* = layers.{n}.norm1.*\n"
     "w.decoder.block.{n}.layer.0.SelfAttention.* = layers.{n}.mixer.*\n"
     "w.decoder.block.{n}.layer.1.layer_norm.* = layers.{n}.norm_cross.*\n"
     "w.decoder.block.{n}.layer.1.EncDecAttention.q.* = layers.{n}.cross.q.*\n"
     "w.decoder.block.{n}.layer.1.EncDecAttention.k.* = layers.{n}.cross.kv.*\n"
     "w.decoder.block.{n}.layer.1.EncDecAttention.v.* = layers.{n}.cross.kv.* last\n"
     "w.decoder.block.{n}.layer.1.EncDecAttention.o.* = layers.{n}.cross.out.*\n"
     "w.decoder.block.{n}.layer.2.layer_norm.* = layers.{n}.norm2.*\n"
     "w.decoder.block.{n}.layer.2.DenseReluDense.wi.* = layers.{n}.ffn.up.*\n"
     "w.decoder.block.{n}.layer.2.DenseReluDense.wi_0.* = layers.{n}.ffn.up.*\n"
     "w.decoder.block.{n}.layer.2.DenseReluDense.wi_1.* = layers.{n}.ffn.up.* last\n"
     "w.decoder.block.{n}.layer.2.DenseReluDense.wo.* = layers.{n}.ffn.down.*\n"
     "in.input_ids = source\n"
     "in.decoder_input_ids = tokens\n"},
};
enum { KNOWN = sizeof known / sizeof known[0] };

/* The memory is what booydar/recurrent-memory-transformer puts before a model of any kind. */
static const char own[] = "w.memory_cell.memory = memory.start\n"
                          "in.tokens = tokens\n"
                          "in.input_ids = tokens\n"
                          "in.source = source\n"
                          "out.y = logits\n"
                          "out.rows = rows\n"
                          "out.rows{s} = rows\n"
                          "out.logits = logits\n"
                          "out.logits{s} = logits\n"
                          "out.loss = loss\n"
                          "out.loss{s} = loss\n"
                          "out.auxiliary{s} = auxiliary\n"
                          "out.memory{s} = segment memory\n"
                          "out.encoded{s} = segment encoded\n";

/* ---- reading ---- */

static char *trimmed(char *text) {
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = '\0';
    return text;
}

/* Cuts the text into rules, in place. */
static ls_status parse(ls_ctx *ctx, const char *choice, ls_naming *naming) {
    size_t lines = 1, number = 0;
    for (size_t i = 0; i < naming->text.length; i++) lines += naming->text.bytes[i] == '\n';
    naming->rule = ls_new(ctx, lines, sizeof *naming->rule);
    if (naming->rule == NULL) return LS_ENOMEM;
    for (char *line = naming->text.bytes, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        number++;
        line = trimmed(line);
        if (*line == '\0' || *line == '#') continue;
        char *equals = strchr(line, '=');
        if (equals == NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %zu: `%.60s` is not PATTERN = TARGET", choice,
                           number, line);
        *equals = '\0';
        const ls_naming_rule rule = {trimmed(line), trimmed(equals + 1)};
        if (*rule.pattern == '\0' || *rule.target == '\0')
            return LS_FAIL(ctx, LS_EINPUT, "%s, line %zu: a pattern and a target are needed",
                           choice, number);
        naming->rule[naming->rules++] = rule;
    }
    return LS_OK;
}

static ls_status load(ls_ctx *ctx, const char *choice, ls_text *out) {
    enum { NAMING_BYTES_MOST = 1 << 20 };
    ls_text names = {0};
    if (choice[0] == '\0') return LS_OK;
    for (size_t i = 0; i < KNOWN; i++) {
        if (strcmp(known[i].name, choice) == 0) {
            ls_text_append(ctx, out, known[i].rules, strlen(known[i].rules));
            return ls_text_status(out);
        }
    }
    if (ls_path_exists(choice)) {
        LS_TRY(ls_file_read(ctx, choice, NAMING_BYTES_MOST, out));
        if (memchr(out->bytes == NULL ? "" : out->bytes, '\0', out->length) != NULL)
            return LS_FAIL(ctx, LS_EINPUT, "%s is no text", choice);
        ls_text_append(ctx, out, "\n", 1);
        return ls_text_status(out);
    }
    for (size_t i = 0; i < KNOWN; i++)
        ls_text_printf(ctx, &names, "%s%s", i == 0 ? "" : ", ", known[i].name);
    LS_FAIL(ctx, LS_EUSE, "names=%s is neither a file nor one of %s", choice,
            names.failed ? "" : names.bytes);
    ls_text_clear(ctx, &names);
    return LS_EUSE;
}

ls_status ls_naming_read(ls_ctx *ctx, const char *choice, ls_naming *out) {
    *out = (ls_naming){0};
    ls_status status = load(ctx, choice, &out->text);
    ls_text_append(ctx, &out->text, own, strlen(own));
    if (status == LS_OK) status = ls_text_status(&out->text);
    if (status == LS_OK) status = parse(ctx, choice, out);
    if (status != LS_OK) ls_naming_clear(ctx, out);
    return status;
}

void ls_naming_clear(ls_ctx *ctx, ls_naming *naming) {
    ls_free(ctx, naming->rule);
    ls_text_clear(ctx, &naming->text);
    *naming = (ls_naming){0};
}

/* ---- finding ---- */

/* What a pattern found: the number under each letter, and the ending. */
typedef struct found {
    int64_t number[26]; /* -1: none */
    const char *rest;   /* NULL: none */
} found;

/* {x} at a place of a pattern or target: the letter's number, else -1. */
static int letter_at(const char *text) {
    return text[0] == '{' && text[1] >= 'a' && text[1] <= 'z' && text[2] == '}' ? text[1] - 'a'
                                                                                : -1;
}

static bool fits_here(const char *pattern, const char *name, found *out) {
    memset(out->number, -1, sizeof out->number);
    out->rest = NULL;
    while (*pattern != '\0') {
        const int letter = letter_at(pattern);
        if (letter >= 0) {
            const size_t digits = strspn(name, "0123456789");
            if (digits == 0 || digits > 9) return false;
            out->number[letter] = strtoll(name, NULL, 10);
            name += digits;
            pattern += 3;
        } else if (pattern[0] == '*' && pattern[1] == '\0') {
            out->rest = name;
            return true;
        } else if (*pattern++ != *name++) {
            return false;
        }
    }
    return *name == '\0';
}

/* A star may stand behind the kind, as in w.*wte.weight. */
static bool fits(const char *pattern, const char *name, found *out) {
    const char *star = strchr(pattern, '*');
    if (star == NULL || star[1] == '\0') return fits_here(pattern, name, out);
    const size_t before = (size_t)(star - pattern);
    if (strncmp(pattern, name, before) != 0) return false;
    for (name += before; name != NULL; name = strchr(name, '.'), name += name != NULL)
        if (fits_here(star + 1, name, out)) return true;
    return false;
}

bool ls_name_parts(const char *pattern, const char *name, int64_t number[26], const char **rest) {
    found by;
    if (!fits(pattern, name, &by)) return false;
    memcpy(number, by.number, sizeof by.number);
    *rest = by.rest;
    return true;
}

static bool expand(const char *target, const found *by, char *out, size_t bytes) {
    size_t used = 0;
    while (*target != '\0') {
        const int letter = letter_at(target);
        int more;
        if (letter >= 0 && by->number[letter] >= 0) {
            more = snprintf(out + used, bytes - used, "%lld", (long long)by->number[letter]);
            target += 3;
        } else if (*target == '*' && by->rest != NULL) {
            more = snprintf(out + used, bytes - used, "%s", by->rest);
            target++;
        } else {
            more = snprintf(out + used, bytes - used, "%c", *target++);
        }
        if (more < 0 || (used += (size_t)more) >= bytes) return false;
    }
    out[used] = '\0';
    return true;
}

bool ls_naming_find(const ls_naming *naming, const char *name, size_t *from, char *out,
                    size_t bytes, int64_t *piece) {
    found by;
    while (*from < naming->rules) {
        const ls_naming_rule *rule = &naming->rule[(*from)++];
        if (!fits(rule->pattern, name, &by)) continue;
        *piece = by.number['s' - 'a'];
        return expand(rule->target, &by, out, bytes);
    }
    return false;
}

bool ls_name_fits(const char *pattern, const char *name, const char *target, char *out,
                  size_t bytes) {
    found by;
    return fits(pattern, name, &by) && expand(target, &by, out, bytes);
}

const char *ls_name_after(const char *name, const char *prefix) {
    const size_t bytes = strlen(prefix);
    return strncmp(name, prefix, bytes) == 0 ? name + bytes : NULL;
}
