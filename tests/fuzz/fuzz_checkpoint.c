/* Checkpoints of hostile origin. The first byte chooses what is forged: the manifest as it stands
 * in its file, the loop's state (state.json, under a manifest that vouches for it), or the carried
 * memories. A run goes on from it for some steps, or refuses. */
#include "../train_fixture.h"

static fixture run; /* whose folder has a checkpoint at step 4 */
static char checkpoints[128];

static void remove_all(void) {
    fixture_close(&run, true);
}

static void begin(void) {
    fixture_open(&run, NULL, "steps=4", "checkpoint_every=4", NULL);
    fixture_path(&run, "checkpoints", checkpoints, sizeof checkpoints);
    ls_train_result result;
    if (fixture_run(&run, &result) != LS_OK || atexit(remove_all) != 0) abort();
}

typedef struct memories {
    const uint8_t *bytes;
    size_t length;
} memories;

static ls_status put_memory(void *user, FILE *file, const char *path) {
    const memories *from = user;
    return ls_file_put(&run.ctx, file, path, from->bytes, from->length);
}

/* A checkpoint that is good but for its state or its memories. */
static void save(json_t *state, const uint8_t *bytes, size_t length) {
    ls_optimizer *optimizer;
    ls_checkpoint about, checkpoint;
    bool found;
    const ls_optimizer_settings how = ls_train_optimizer(&run.settings);
    run.ctx.error = (ls_error){0};
    if (ls_folder_remove(&run.ctx, checkpoints) != LS_OK ||
        ls_optimizer_new(&run.ctx, run.store, &how, &optimizer) != LS_OK)
        abort();
    checkpoint =
        (ls_checkpoint){.step = 4, .config_hash = ls_hash(run.job.config, strlen(run.job.config))};
    checkpoint.state = state;
    memories from = {bytes, length};
    if (length > 0) checkpoint.put_memory = put_memory;
    checkpoint.user = &from;
    if (ls_checkpoint_save(&run.ctx, checkpoints, &checkpoint, optimizer, 2) != LS_OK) abort();
    if (ls_checkpoint_load(&run.ctx, checkpoints, optimizer, &about, &found) == LS_OK)
        ls_checkpoint_clear(&about);
    ls_optimizer_free(&run.ctx, optimizer);
}

static const char good_state[] =
    "{\"step\": 4, \"updates\": 4, \"batch\": 4, \"tokens\": 128, \"data\": "
    "\"000000000000004d\", \"seed\": 1, \"seconds\": 0.1, \"guard\": {\"rejected\": 0, "
    "\"in_a_row\": 0, \"rate_factor\": 1.0, \"loss\": [2.5, 2.4], \"norm\": [1.0, 1.1]}}";

static void forge_manifest(const uint8_t *bytes, size_t length) {
    char path[200];
    json_t *state = json_loads(good_state, 0, NULL);
    save(state, NULL, 0);
    json_decref(state);
    snprintf(path, sizeof path, "%s/step-00000004/manifest.json", checkpoints);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fclose(file) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length == 0) return 0;
    if (run.store == NULL) begin();
    json_t *state = NULL;
    const uint8_t *rest = bytes + 1;
    ls_train_result result;
    if (bytes[0] % 3 == 0) forge_manifest(rest, length - 1);
    if (bytes[0] % 3 == 1) {
        run.ctx.error = (ls_error){0};
        if (ls_json_parse(&run.ctx, (const char *)rest, length - 1, "state", &state) != LS_OK)
            return 0;
        save(state, NULL, 0);
    }
    if (bytes[0] % 3 == 2) save(state = json_loads(good_state, 0, NULL), rest, length - 1);
    json_decref(state);
    run.settings.steps = 6;
    (void)fixture_run(&run, &result);
    return 0;
}
