/* Jobs: a request and what becomes of it. */
#include "serve/batch.h"

ls_status ls_job_new(ls_ctx *ctx, ls_request *request, ls_job **out) {
    ls_job *job = ls_new(ctx, 1, sizeof *job);
    *out = NULL;
    if (job == NULL) return LS_ENOMEM;
    const size_t n = (size_t)request->n, prompts = request->prompts;
    job->choice = ls_new(ctx, prompts * n, sizeof *job->choice);
    job->read = ls_new(ctx, prompts, sizeof *job->read);
    if (job->choice == NULL || job->read == NULL) {
        ls_free(ctx, job->choice);
        ls_free(ctx, job->read);
        ls_free(ctx, job);
        return LS_ENOMEM;
    }
    job->request = *request;
    *request = (ls_request){0};
    job->choices = prompts * n;
    for (size_t i = 0; i < job->choices; i++)
        job->choice[i] = (ls_choice){.job = job,
                                     .prompt = &job->request.prompt[i / n],
                                     .number = (int64_t)i,
                                     .draw = (int64_t)(i % n),
                                     .scored = {.tops = job->request.tops}};
    for (size_t i = 0; i < prompts; i++) job->read[i].scored.tops = job->request.tops;
    *out = job;
    return LS_OK;
}

void ls_job_free(ls_ctx *ctx, ls_job *job) {
    if (job == NULL) return;
    for (size_t i = 0; i < job->choices; i++) {
        ls_choice *choice = &job->choice[i];
        ls_stream_free(choice->stream);
        ls_scored_clear(ctx, &choice->scored);
        ls_ids_clear(ctx, &choice->made);
        ls_text_clear(ctx, &choice->text);
    }
    for (size_t i = 0; i < job->request.prompts; i++) {
        ls_stream_free(job->read[i].stream);
        ls_free(ctx, job->read[i].last);
        ls_scored_clear(ctx, &job->read[i].scored);
    }
    ls_request_clear(ctx, &job->request);
    ls_free(ctx, job->choice);
    ls_free(ctx, job->read);
    ls_free(ctx, job);
}
