/* Image classification of the Long Range Arena: the class of a grey CIFAR-10 image, pixel by pixel.
 * Files are the binary ones: data_batch_N.bin and test_batch.bin, for each image a byte with its
 * class and 1,024 of each colour. */
#include <string.h>

#include "task/lib/readers.h"
#include "task/task.h"

enum { CLASSES = 10, PIXELS = 1024, COLOURS = 3, IMAGE = 1 + COLOURS * PIXELS };

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    if (length == PIXELS) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "task cifar has images of %d pixels: the length is that, not %lld",
                   PIXELS, (long long)length);
}

static ls_status add_file(ls_ctx *ctx, const char *folder, const char *name, int part,
                          ls_records *out) {
    char path[LS_OPTION_TEXT_BYTES + 256];
    ls_bytes file;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, name));
    LS_TRY(ls_records_read(ctx, out, path, &file));
    if (file.count == 0 || file.count % IMAGE != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s has %zu bytes, which is no number of images of %d", path,
                       file.count, IMAGE);
    for (size_t at = 0; at < file.count; at += IMAGE) {
        const ls_labelled record = {.text = {{file.at + at + 1, IMAGE - 1}}, .label = file.at[at]};
        if (record.label >= CLASSES)
            return LS_FAIL(ctx, LS_EINPUT, "%s: image %zu has class %d of %d", path, at / IMAGE,
                           record.label, CLASSES);
        LS_TRY(ls_records_add(ctx, out, part, record));
    }
    return LS_OK;
}

static int part_named(const char *name) {
    const size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 4, ".bin") != 0) return -1;
    if (strncmp(name, "data_batch", 10) == 0) return LS_RECORDS_TRAIN;
    return strncmp(name, "test_batch", 10) == 0 ? LS_RECORDS_TEST : -1;
}

static ls_status load(ls_ctx *ctx, const char *folder, ls_records *out) {
    char **names = NULL;
    size_t count = 0;
    ls_status status = LS_OK;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    for (size_t i = 0; i < count && status == LS_OK; i++) {
        const int part = part_named(names[i]);
        if (part >= 0) status = add_file(ctx, folder, names[i], part, out);
    }
    ls_names_free(ctx, names, count);
    return status;
}

static int64_t encode(ls_bytes image, int64_t room, int32_t *tokens) {
    const uint8_t *red = image.at, *green = red + PIXELS, *blue = green + PIXELS;
    const int64_t count = ls_min(room, PIXELS);
    for (int64_t i = 0; i < count; i++) tokens[i] = ls_grey_lra(red[i], green[i], blue[i]);
    return count;
}

const ls_task_type ls_task_cifar = {
    .name = "cifar",
    .summary = "the class of a grey image pixel by pixel, from the user's CIFAR-10 files",
    .paper = "Tay et al. 2020 (Long Range Arena); Krizhevsky 2009",
    .options = LS_RECORDS_OPTIONS,
    .length = PIXELS,
    .classes = CLASSES,
    .one_length = true,
    .vocabulary = ls_bytes_vocabulary,
    .check = check,
    .load = load,
    .encode = encode,
};
