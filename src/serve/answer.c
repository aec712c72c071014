#include "serve/answer.h"

#include <string.h>

/* ---- texts ---- */

/* The length of the UTF-8 character that begins here, or 0 where none does; `cut`: it may go on
 * beyond the end. */
static size_t character(const char *bytes, size_t left, bool *cut) {
    const unsigned char *at = (const unsigned char *)bytes;
    const size_t length = at[0] < 0x80                    ? 1
                          : at[0] >= 0xC2 && at[0] < 0xE0 ? 2
                          : (at[0] & 0xF0) == 0xE0        ? 3
                          : at[0] >= 0xF0 && at[0] < 0xF5 ? 4
                                                          : 0;
    *cut = false;
    for (size_t i = 1; i < length; i++) {
        if (i == left) {
            *cut = true;
            return 0;
        }
        const unsigned char low = i > 1 ? 0x80 : at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
        const unsigned char high = i > 1           ? 0xBF
                                   : at[0] == 0xED ? 0x9F
                                   : at[0] == 0xF4 ? 0x8F
                                                   : 0xBF;
        if (at[i] < low || at[i] > high) return 0;
    }
    return length;
}

void ls_answer_text(ls_ctx *ctx, const char *bytes, size_t length, ls_text *out) {
    ls_text_append(ctx, out, "\"", 1);
    for (size_t i = 0; i < length;) {
        bool cut;
        const size_t wide = character(bytes + i, length - i, &cut);
        const unsigned char c = (unsigned char)bytes[i];
        if (wide == 0)
            ls_text_printf(ctx, out, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            ls_text_printf(ctx, out, "\\%c", c);
        else if (c == '\n')
            ls_text_printf(ctx, out, "\\n");
        else if (c < 0x20 || c == 0x7F)
            ls_text_printf(ctx, out, "\\u%04x", (unsigned)c);
        else
            ls_text_append(ctx, out, bytes + i, wide);
        i += wide == 0 ? 1 : wide;
    }
    ls_text_append(ctx, out, "\"", 1);
}

static void put_string(ls_ctx *ctx, const char *text, ls_text *out) {
    ls_answer_text(ctx, text, strlen(text), out);
}

/* Characters, each byte that is none counting as one. */
static int64_t characters(const char *bytes, size_t length) {
    int64_t count = 0;
    for (size_t i = 0; i < length; count++) {
        bool cut;
        const size_t wide = character(bytes + i, length - i, &cut);
        i += wide == 0 ? 1 : wide;
    }
    return count;
}

static bool is_whole(const char *bytes, size_t length) {
    for (size_t i = 0; i < length;) {
        bool cut;
        const size_t wide = character(bytes + i, length - i, &cut);
        if (wide == 0) return false;
        i += wide;
    }
    return true;
}

ls_status ls_answer_token(ls_ctx *ctx, const ls_serving *serving, int32_t token, ls_text *out) {
    ls_text bytes = {0}, shown = {0};
    /* ids beyond the tokenizer's, where the model's vocabulary is padded, stand for nothing */
    if (token >= 0 && token < ls_tokenizer_vocabulary(serving->tokenizer)) {
        const ls_status status = ls_tokenizer_decode(ctx, serving->tokenizer, &token, 1, &bytes);
        if (status != LS_OK) ctx->error = (ls_error){0};
    }
    if (!is_whole(bytes.bytes, bytes.length)) {
        ls_text_printf(ctx, &shown, "bytes:");
        for (size_t i = 0; i < bytes.length; i++)
            ls_text_printf(ctx, &shown, "\\x%02x", (unsigned)(unsigned char)bytes.bytes[i]);
    } else {
        ls_text_append(ctx, &shown, bytes.bytes, bytes.length);
    }
    ls_answer_text(ctx, shown.bytes, shown.length, out);
    ls_text_clear(ctx, &bytes);
    ls_text_clear(ctx, &shown);
    return ls_text_status(out);
}

/* ---- log-probabilities ---- */

static void put_number(ls_ctx *ctx, float value, ls_text *out) {
    /* minus infinity has no number in JSON */
    ls_text_printf(ctx, out, "%.9g", value < -3e38f ? -3.4028234e38 : (double)value);
}

/* Entries first to end - 1 in the shape of completions: four lists side by side. `offset` counts
 * characters. */
static ls_status put_lists(ls_ctx *ctx, const ls_serving *serving, const ls_scored *scored,
                           size_t first, size_t end, int64_t *offset, ls_text *out) {
    ls_text_printf(ctx, out, "{\"tokens\":[");
    for (size_t i = first; i < end; i++) {
        if (i > first) ls_text_append(ctx, out, ",", 1);
        LS_TRY(ls_answer_token(ctx, serving, scored->at[i].token, out));
    }
    ls_text_printf(ctx, out, "],\"token_logprobs\":[");
    for (size_t i = first; i < end; i++) {
        if (i > first) ls_text_append(ctx, out, ",", 1);
        if (scored->at[i].given)
            put_number(ctx, scored->at[i].logprob, out);
        else
            ls_text_printf(ctx, out, "null");
    }
    ls_text_printf(ctx, out, "],\"top_logprobs\":[");
    for (size_t i = first; i < end; i++) {
        if (i > first) ls_text_append(ctx, out, ",", 1);
        if (!scored->at[i].given || scored->tops == 0) {
            ls_text_printf(ctx, out, "null");
            continue;
        }
        const struct ls_scored_top *top = scored->top + i * (size_t)scored->tops;
        bool own = false;
        ls_text_append(ctx, out, "{", 1);
        for (int64_t j = 0; j < scored->tops && top[j].token >= 0; j++) {
            if (j > 0) ls_text_append(ctx, out, ",", 1);
            LS_TRY(ls_answer_token(ctx, serving, top[j].token, out));
            ls_text_append(ctx, out, ":", 1);
            put_number(ctx, top[j].logprob, out);
            own |= top[j].token == scored->at[i].token;
        }
        if (!own) { /* the token itself comes last, where it is not among the likeliest */
            ls_text_append(ctx, out, ",", 1);
            LS_TRY(ls_answer_token(ctx, serving, scored->at[i].token, out));
            ls_text_append(ctx, out, ":", 1);
            put_number(ctx, scored->at[i].logprob, out);
        }
        ls_text_append(ctx, out, "}", 1);
    }
    ls_text_printf(ctx, out, "],\"text_offset\":[");
    ls_text piece = {0};
    for (size_t i = first; i < end; i++) {
        ls_text_printf(ctx, out, "%s%lld", i > first ? "," : "", (long long)*offset);
        piece.length = 0;
        if (scored->at[i].token < ls_tokenizer_vocabulary(serving->tokenizer) &&
            ls_tokenizer_decode(ctx, serving->tokenizer, &scored->at[i].token, 1, &piece) == LS_OK)
            /* bytes that go on a character count with the one that begins it */
            for (size_t b = 0; b < piece.length; b++)
                *offset += ((unsigned char)piece.bytes[b] & 0xC0) != 0x80;
        ctx->error = (ls_error){0};
    }
    ls_text_clear(ctx, &piece);
    ls_text_printf(ctx, out, "]}");
    return ls_text_status(out);
}

static ls_status put_chat_token(ls_ctx *ctx, const ls_serving *serving, int32_t token,
                                float logprob, ls_text *out) {
    ls_text bytes = {0};
    ls_text_printf(ctx, out, "{\"token\":");
    LS_TRY(ls_answer_token(ctx, serving, token, out));
    ls_text_printf(ctx, out, ",\"logprob\":");
    put_number(ctx, logprob, out);
    ls_text_printf(ctx, out, ",\"bytes\":[");
    if (token < ls_tokenizer_vocabulary(serving->tokenizer) &&
        ls_tokenizer_decode(ctx, serving->tokenizer, &token, 1, &bytes) == LS_OK)
        for (size_t i = 0; i < bytes.length; i++)
            ls_text_printf(ctx, out, "%s%d", i > 0 ? "," : "", (int)(unsigned char)bytes.bytes[i]);
    ctx->error = (ls_error){0};
    ls_text_clear(ctx, &bytes);
    ls_text_printf(ctx, out, "]");
    return ls_text_status(out);
}

/* The same in the shape of chats: a list of objects. */
static ls_status put_content(ls_ctx *ctx, const ls_serving *serving, const ls_scored *scored,
                             size_t first, size_t end, ls_text *out) {
    ls_text_printf(ctx, out, "{\"content\":[");
    for (size_t i = first; i < end; i++) {
        const struct ls_scored_top *top = scored->top + i * (size_t)scored->tops;
        if (i > first) ls_text_append(ctx, out, ",", 1);
        LS_TRY(put_chat_token(ctx, serving, scored->at[i].token, scored->at[i].logprob, out));
        ls_text_printf(ctx, out, ",\"top_logprobs\":[");
        for (int64_t j = 0; j < scored->tops && top[j].token >= 0; j++) {
            if (j > 0) ls_text_append(ctx, out, ",", 1);
            LS_TRY(put_chat_token(ctx, serving, top[j].token, top[j].logprob, out));
            ls_text_append(ctx, out, "}", 1);
        }
        ls_text_printf(ctx, out, "]}");
    }
    ls_text_printf(ctx, out, "]}");
    return ls_text_status(out);
}

static ls_status put_logprobs(ls_ctx *ctx, const ls_serving *serving, const ls_job *job,
                              const ls_choice *choice, size_t first, size_t end, int64_t *offset,
                              ls_text *out) {
    if (job->request.tops < 0) {
        ls_text_printf(ctx, out, "null");
        return LS_OK;
    }
    if (job->request.kind == LS_ASKS_CHAT)
        return put_content(ctx, serving, &choice->scored, first, end, out);
    return put_lists(ctx, serving, &choice->scored, first, end, offset, out);
}

/* ---- whole answers ---- */

static const char *finish_name(ls_finish finish) {
    return finish == LS_FINISH_STOP     ? "\"stop\""
           : finish == LS_FINISH_LENGTH ? "\"length\""
                                        : "null";
}

static void put_head(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job, bool event,
                     ls_text *out) {
    const bool chat = job->request.kind == LS_ASKS_CHAT;
    ls_text_printf(ctx, out, "{\"id\":\"%s-%llu\",\"object\":\"%s\",\"created\":%lld,\"model\":",
                   chat ? "chatcmpl" : "cmpl", (unsigned long long)head->number,
                   !chat   ? "text_completion"
                   : event ? "chat.completion.chunk"
                           : "chat.completion",
                   (long long)head->created);
    put_string(ctx, head->serving->model, out);
}

static void put_usage(ls_ctx *ctx, const ls_job *job, ls_text *out) {
    int64_t prompt = 0, made = 0, reused = 0;
    for (size_t i = 0; i < job->request.prompts; i++)
        prompt += (int64_t)job->request.prompt[i].count;
    for (size_t i = 0; i < job->choices; i++) {
        made += (int64_t)job->choice[i].made.count;
        if (job->choice[i].draw == 0) reused += job->choice[i].reused;
    }
    ls_text_printf(ctx, out,
                   "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
                   (long long)prompt, (long long)made, (long long)(prompt + made),
                   (long long)reused);
}

/* The prompt's text before what follows it. */
static ls_status echoed_text(ls_ctx *ctx, const ls_serving *serving, const ls_choice *choice,
                             ls_text *out) {
    if (!choice->job->request.echo) return LS_OK;
    for (size_t i = 0; i < choice->prompt->count; i++)
        if (choice->prompt->at[i] < ls_tokenizer_vocabulary(serving->tokenizer))
            LS_TRY(ls_tokenizer_decode(ctx, serving->tokenizer, &choice->prompt->at[i], 1, out));
    return LS_OK;
}

static ls_status put_choice(ls_ctx *ctx, const ls_serving *serving, const ls_job *job,
                            const ls_choice *choice, ls_text *out) {
    ls_text text = {0};
    int64_t offset = 0;
    LS_TRY(echoed_text(ctx, serving, choice, &text));
    if (job->request.tops >= 0 && !job->request.echo) { /* offsets count from the prompt's start */
        ls_text before = {0};
        for (size_t i = 0; i < choice->prompt->count; i++)
            if (choice->prompt->at[i] < ls_tokenizer_vocabulary(serving->tokenizer))
                LS_TRY(ls_tokenizer_decode(ctx, serving->tokenizer, &choice->prompt->at[i], 1,
                                           &before));
        offset = characters(before.bytes, before.length);
        ls_text_clear(ctx, &before);
    }
    ls_text_append(ctx, &text, choice->text.bytes, choice->text.length);
    const bool chat = job->request.kind == LS_ASKS_CHAT;
    ls_text_printf(ctx, out, "{\"index\":%lld,\"%s", (long long)choice->number,
                   chat ? "message\":{\"role\":\"assistant\",\"content\":" : "text\":");
    ls_answer_text(ctx, text.bytes, text.length, out);
    ls_text_printf(ctx, out, "%s,\"logprobs\":", chat ? "}" : "");
    ls_status status =
        put_logprobs(ctx, serving, job, choice, 0, choice->scored.count, &offset, out);
    ls_text_printf(ctx, out, ",\"finish_reason\":%s}", finish_name(choice->finish));
    ls_text_clear(ctx, &text);
    return status;
}

ls_status ls_answer_write(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job,
                          ls_text *out) {
    put_head(ctx, head, job, false, out);
    ls_text_printf(ctx, out, ",\"choices\":[");
    for (size_t i = 0; i < job->choices; i++) {
        if (i > 0) ls_text_append(ctx, out, ",", 1);
        LS_TRY(put_choice(ctx, head->serving, job, &job->choice[i], out));
    }
    ls_text_printf(ctx, out, "],\"usage\":");
    put_usage(ctx, job, out);
    ls_text_printf(ctx, out, "}\n");
    return ls_text_status(out);
}

/* ---- streams ---- */

/* How many bytes of a text may be sent: not the beginning of a character that is not whole, nor of
 * what may become a stop. */
static size_t sendable(const ls_job *job, const ls_choice *choice) {
    const ls_text *text = &choice->text;
    size_t end = text->length;
    if (choice->finish != LS_FINISH_NONE) return end;
    for (size_t i = 0; i < job->request.stops; i++) {
        const struct ls_stop_text *stop = &job->request.stop[i];
        for (size_t held = stop->length - 1; held > 0; held--)
            if (held <= text->length &&
                memcmp(text->bytes + text->length - held, stop->bytes, held) == 0) {
                if (text->length - held < end) end = text->length - held;
                break;
            }
    }
    for (size_t back = 1; back <= 3 && back <= end; back++) {
        bool cut;
        if (character(text->bytes + end - back, back, &cut) == 0 && cut) return end - back;
    }
    return end;
}

static ls_status put_event(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job,
                           const ls_choice *choice, const char *text, size_t length, size_t end,
                           ls_answer_sent *sent, bool last, ls_text *out) {
    const bool chat = job->request.kind == LS_ASKS_CHAT;
    ls_text_printf(ctx, out, "data: ");
    put_head(ctx, head, job, true, out);
    ls_text_printf(ctx, out, ",\"choices\":[{\"index\":%lld,\"%s", (long long)choice->number,
                   !chat         ? "text\":"
                   : sent->begun ? "delta\":{\"content\":"
                                 : "delta\":{\"role\":\"assistant\",\"content\":");
    ls_answer_text(ctx, text, length, out);
    ls_text_printf(ctx, out, "%s,\"logprobs\":", chat ? "}" : "");
    LS_TRY(
        put_logprobs(ctx, head->serving, job, choice, sent->scored, end, &sent->characters, out));
    ls_text_printf(ctx, out, ",\"finish_reason\":%s}]}\n\n",
                   last ? finish_name(choice->finish) : "null");
    sent->begun = true;
    sent->scored = end;
    return ls_text_status(out);
}

ls_status ls_answer_event(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job,
                          const ls_choice *choice, ls_answer_sent *sent, ls_text *out) {
    const bool last = choice->finish != LS_FINISH_NONE;
    if (sent->ended) return LS_OK;
    if (!sent->begun && job->request.echo) {
        ls_text text = {0};
        ls_status status = echoed_text(ctx, head->serving, choice, &text);
        const size_t scored = job->request.tops < 0 ? 0 : choice->prompt->count;
        if (status == LS_OK)
            status = put_event(ctx, head, job, choice, text.bytes, text.length, scored, sent, false,
                               out);
        ls_text_clear(ctx, &text);
        LS_TRY(status);
    }
    const size_t end = sendable(job, choice);
    if (end == sent->text && choice->scored.count == sent->scored && !last) return LS_OK;
    const size_t from = sent->text;
    sent->text = end;
    sent->ended = last;
    return put_event(ctx, head, job, choice, choice->text.bytes + from, end - from,
                     choice->scored.count, sent, last, out);
}

ls_status ls_answer_last(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job, ls_text *out) {
    if (job->request.usage) {
        ls_text_printf(ctx, out, "data: ");
        put_head(ctx, head, job, true, out);
        ls_text_printf(ctx, out, ",\"choices\":[],\"usage\":");
        put_usage(ctx, job, out);
        ls_text_printf(ctx, out, "}\n\n");
    }
    ls_text_printf(ctx, out, "data: [DONE]\n\n");
    return ls_text_status(out);
}

/* ---- the rest ---- */

ls_status ls_answer_error(ls_ctx *ctx, int code, const char *sentence, ls_text *out) {
    const char *type = code == 401   ? "authentication_error"
                       : code == 404 ? "not_found_error"
                       : code == 429 ? "rate_limit_error"
                       : code >= 500 ? "server_error"
                                     : "invalid_request_error";
    ls_text_printf(ctx, out, "{\"error\":{\"code\":%d,\"type\":\"%s\",\"message\":", code, type);
    put_string(ctx, sentence, out);
    ls_text_printf(ctx, out, "}}\n");
    return ls_text_status(out);
}

ls_status ls_answer_models(ls_ctx *ctx, const ls_answer_head *head, ls_text *out) {
    ls_text_printf(ctx, out, "{\"object\":\"list\",\"data\":[{\"id\":");
    put_string(ctx, head->serving->model, out);
    ls_text_printf(ctx, out,
                   ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"longshot\","
                   "\"max_model_len\":%lld}]}\n",
                   (long long)head->created, (long long)head->serving->context);
    return ls_text_status(out);
}

ls_status ls_answer_tokens(ls_ctx *ctx, const ls_serving *serving, const ls_ids *ids,
                           bool with_pieces, ls_text *out) {
    ls_text_printf(ctx, out, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", ids->count,
                   (long long)serving->context);
    for (size_t i = 0; i < ids->count; i++)
        ls_text_printf(ctx, out, "%s%d", i > 0 ? "," : "", (int)ids->at[i]);
    ls_text_printf(ctx, out, "]");
    if (with_pieces) {
        ls_text_printf(ctx, out, ",\"token_strs\":[");
        for (size_t i = 0; i < ids->count; i++) {
            if (i > 0) ls_text_append(ctx, out, ",", 1);
            LS_TRY(ls_answer_token(ctx, serving, ids->at[i], out));
        }
        ls_text_printf(ctx, out, "]");
    }
    ls_text_printf(ctx, out, "}\n");
    return ls_text_status(out);
}

ls_status ls_answer_detokenized(ls_ctx *ctx, const ls_serving *serving, const ls_ids *ids,
                                ls_text *out) {
    ls_text text = {0}, quoted = {0};
    LS_TRY(ls_tokenizer_decode_text(ctx, serving->tokenizer, ids->at, ids->count, LS_DECODE_UTF8,
                                    &text));
    ls_answer_text(ctx, text.bytes, text.length, &quoted);
    ls_text_printf(ctx, out, "{\"prompt\":");
    ls_text_append(ctx, out, quoted.bytes, quoted.length);
    ls_text_printf(ctx, out, ",\"content\":");
    ls_text_append(ctx, out, quoted.bytes, quoted.length);
    ls_text_printf(ctx, out, "}\n");
    ls_text_clear(ctx, &text);
    ls_text_clear(ctx, &quoted);
    return ls_text_status(out);
}

ls_status ls_answer_tokenizer(ls_ctx *ctx, const ls_serving *serving, const char *chat_template,
                              ls_text *out) {
    const ls_special_ids special = ls_tokenizer_special(serving->tokenizer);
    const struct {
        const char *name;
        int32_t id;
    } tokens[] = {{"bos_token", special.bos},
                  {"eos_token", special.eos},
                  {"unk_token", special.unk},
                  {"pad_token", special.pad}};
    ls_text_printf(ctx, out, "{\"vocab_size\":%lld",
                   (long long)ls_tokenizer_vocabulary(serving->tokenizer));
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        ls_text_printf(ctx, out, ",\"%s\":", tokens[i].name);
        if (tokens[i].id < 0)
            ls_text_printf(ctx, out, "null");
        else
            LS_TRY(ls_answer_token(ctx, serving, tokens[i].id, out));
    }
    ls_text_printf(ctx, out, ",\"chat_template\":");
    if (chat_template == NULL)
        ls_text_printf(ctx, out, "null");
    else
        put_string(ctx, chat_template, out);
    ls_text_printf(ctx, out, "}\n");
    return ls_text_status(out);
}
