#include "model/segments.h"

#include "model/slots.h"

/* The lengths that the recording was given. */
static int64_t given_segments(ls_program *p, const ls_recording *how, int64_t T, int64_t each,
                              int64_t length[LS_SEGMENTS_MAX]) {
    const int64_t count = how->segment_count;
    int64_t sum = 0;
    for (int64_t i = 0; i < ls_min(count, LS_SEGMENTS_MAX); i++) {
        length[i] = ls_min(each, how->segments[i]);
        sum += length[i];
    }
    if (sum == T && count <= LS_SEGMENTS_MAX) return count;
    ls_refuse(p, LS_EUSE, "%lld segments of at most model.segment=%lld tokens are not %lld tokens",
              (long long)count, (long long)each, (long long)T);
    return 0;
}

int64_t ls_segments_of(ls_program *p, int64_t T, int64_t each, int64_t length[LS_SEGMENTS_MAX]) {
    const int64_t count = (T + each - 1) / each;
    if (count > LS_SEGMENTS_MAX) {
        ls_refuse(p, LS_EUSE, "%lld tokens at once are more than %d segments of %lld", (long long)T,
                  LS_SEGMENTS_MAX, (long long)each);
        return 0;
    }
    for (int64_t i = 0; i < count; i++) length[i] = ls_min(each, T - i * each);
    return count;
}

ls_tensor *ls_in_segments(ls_program *p, const ls_model_config *config, const ls_recording *how,
                          ls_tensor *x, ls_carried now, int64_t extra, ls_segment_fn *record) {
    const int64_t each = config->model.segment;
    if (x == NULL) return NULL;
    ls_tensor *segment[LS_SEGMENTS_MAX];
    int64_t length[LS_SEGMENTS_MAX] = {0};
    const int64_t count = how->segments != NULL ? given_segments(p, how, x->dim[1], each, length)
                                                : ls_segments_of(p, x->dim[1], each, length);
    if (count == 0) return NULL;
    ls_cut_rows(p, x, (int)count, length, segment);
    ls_carried kept = {0};
    for (int64_t i = 0; i < count && !ls_failed(p); i++) {
        ls_apart(p, extra + length[i]);
        segment[i] = record(p, config, segment[i], &now);
        ls_apart_end(p);
        ls_observe_segment(p, how, "memory", i, now.memory);
        ls_observe_segment(p, how, "encoded", i, now.encoded);
        if (length[i] == each) kept = now;
    }
    ls_state_write(p, "memory", kept.memory);
    ls_state_write(p, "encoded", kept.encoded);
    ls_program_set_unit(p, each);
    return ls_join_rows(p, (int)count, segment);
}

ls_tensor *ls_memory_before(ls_program *p, const ls_model_settings *about, int64_t batch) {
    ls_tensor *before =
        ls_state_read(p, "memory", ls_type(p), LS_DIMS(batch, about->memory, about->width));
    return ls_begin_with(p, before, ls_slots_start(p, about));
}
