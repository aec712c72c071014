/* The loss of the model that is open, and its attention resolution. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/score.h"
#include "reach/reach.h"

static ls_eval_settings eval_settings(const ls_reach *reach, int64_t length, int64_t tokens) {
    ls_eval_settings s = reach->model.settings;
    snprintf(s.protocol, sizeof s.protocol, "%s",
             json_string_value(json_object_get(json_object_get(reach->state, "plan"), "protocol")));
    s.lengths = (ls_ints){.count = 1, .at = {length}};
    s.room = ls_reach_planned(reach, "room");
    s.tokens = tokens > 0 ? tokens : ls_reach_planned(reach, "tokens");
    s.chunk = ls_reach_planned(reach, "chunk");
    s.batch = ls_min(ls_reach_planned(reach, "batch"), ls_eval_batch(0, length, INT64_MAX / 2));
    s.excess =
        reach->variant == 0; /* others are held against the flat tail of the model as it is */
    return s;
}

ls_status ls_reach_perplexity(ls_reach *reach, int64_t length, int64_t tokens, json_t **result) {
    const ls_eval_settings settings = eval_settings(reach, length, tokens);
    const ls_eval_hooks hooks = {.stop = &reach->deadline.raised};
    ls_eval_results results;
    ls_status status = ls_eval_run(reach->model.trained.model, reach->data.tokenizer,
                                   reach->data.test, &settings, &hooks, &results);
    json_t *all = status == LS_OK ? ls_eval_results_json(&results) : NULL;
    if (status == LS_OK) {
        *result = json_incref(json_array_get(json_object_get(all, "results"), 0));
        if (*result == NULL) status = LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the result");
    }
    json_decref(all);
    ls_eval_results_clear(reach->ctx, &results);
    return status;
}

ls_status ls_reach_resolution(ls_reach *reach, int64_t length, json_t **result) {
    const ls_eval_settings settings = eval_settings(reach, length, 0);
    const ls_selection selection = {.longest = settings.room,
                                    .tokens = settings.tokens,
                                    .documents = (ls_eval_documents)settings.documents};
    const ls_resolution_request wanted = {.length = length,
                                          .chunk = settings.chunk,
                                          .tokens = settings.resolution_tokens,
                                          .stop = &reach->deadline.raised};
    ls_resolution found;
    ls_status status = ls_resolution_measure(reach->model.trained.model, reach->data.test,
                                             &selection, &wanted, &found);
    if (status == LS_OK)
        *result =
            json_pack("{s:I, s:f, s:f, s:f, s:f, s:I}", "length", (json_int_t)length, "R_head",
                      found.R_head, "R_layer", found.R_layer, "M_head", found.M_head, "M_layer",
                      found.M_layer, "tokens", (json_int_t)found.tokens);
    ls_resolution_clear(reach->ctx, &found);
    if (status == LS_OK && *result == NULL)
        status = LS_FAIL(reach->ctx, LS_EUSE, "the attention's scores are not finite");
    return status;
}
