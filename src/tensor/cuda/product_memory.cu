#include "tensor/cuda/product_memory.cuh"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_MAX = 4 << 20 };

/* A plain file and nothing else: a pipe would be waited for. -1: there is none. */
static int open_descriptor(const char *path, int flags) {
    struct stat about;
    const int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0 || (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))) return fd;
    close(fd);
    return -1;
}

static FILE *open_plain(const char *path, int flags, const char *mode) {
    const int fd = open_descriptor(path, flags);
    FILE *file = fd < 0 ? NULL : fdopen(fd, mode);
    if (file == NULL && fd >= 0) close(fd);
    return file;
}

/* The whole file, ended by a zero; NULL where there is none, or one that cannot be ours. */
static char *read_text(const char *path) {
    FILE *file = open_plain(path, O_RDONLY, "rb");
    if (file == NULL) return NULL;
    char *text = (char *)malloc(TEXT_MAX + 1);
    size_t length = text == NULL ? 0 : fread(text, 1, TEXT_MAX + 1, file);
    fclose(file);
    if (text == NULL || length > TEXT_MAX) {
        free(text);
        return NULL;
    }
    text[length] = '\0';
    return text;
}

/* Replaces the file by `text` and one line: under another name first, so that a reader sees the old
 * file or the new one. */
static void write_text(const char *path, const char *text, const char *key, const char *value) {
    char other[LS_PRODUCT_PATH_BYTES + 32];
    snprintf(other, sizeof other, "%s.%ld", path, (long)getpid());
    FILE *file = open_plain(other, O_WRONLY | O_CREAT | O_TRUNC, "wb");
    if (file == NULL) return;
    size_t length = text == NULL ? 0 : strlen(text);
    const char *gap = length > 0 && text[length - 1] != '\n' ? "\n" : "";
    bool fine = fprintf(file, "%s%s%s %s\n", text == NULL ? "" : text, gap, key, value) > 0;
    fine = fclose(file) == 0 && fine;
    if (!fine || rename(other, path) != 0) remove(other);
}

void ls_product_memory_open(ls_product_memory *memory) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[sizeof memory->path];
    int length = -1;
    memset(memory, 0, sizeof *memory);
    if (cache != NULL && cache[0] == '/')
        length = snprintf(folder, sizeof folder, "%s", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(folder, sizeof folder, "%s/.cache", home);
    if (length < 0 || (size_t)length + 64 > sizeof folder) return;
    mkdir(folder, 0700); /* mostly there */
    strcat(folder, "/longshot");
    mkdir(folder, 0777);
    snprintf(memory->path, sizeof memory->path, "%.3900s/cuda-products.txt", folder);
    memory->text = read_text(memory->path);
}

void ls_product_memory_close(ls_product_memory *memory) {
    free(memory->text);
    memory->text = NULL;
}

bool ls_product_memory_find(const ls_product_memory *memory, const char *key, char *value,
                            size_t bytes) {
    size_t length = strlen(key);
    bool found = false;
    for (const char *line = memory->text; line != NULL && *line != '\0';) {
        size_t line_length = strcspn(line, "\n");
        if (line_length > length && memcmp(line, key, length) == 0 && line[length] == ' ' &&
            line_length - length - 1 < bytes) {
            memcpy(value, line + length + 1, line_length - length - 1);
            value[line_length - length - 1] = '\0';
            found = true;
        }
        line += line_length;
        if (*line == '\n') line++;
    }
    return found;
}

void ls_product_memory_keep(ls_product_memory *memory, const char *key, const char *value,
                            const char *instead_of) {
    char lock_path[sizeof memory->path + 8], other[LS_PRODUCT_VALUE_BYTES];
    if (memory->path[0] == '\0') return;
    snprintf(lock_path, sizeof lock_path, "%s.lock", memory->path);
    int lock = open_descriptor(lock_path, O_CREAT | O_RDWR);
    if (lock < 0) return;
    if (flock(lock, LOCK_EX) == 0) {
        free(memory->text);
        memory->text = read_text(memory->path);
        bool there = ls_product_memory_find(memory, key, other, sizeof other);
        if (!there || (instead_of != NULL && strcmp(other, instead_of) == 0)) {
            write_text(memory->path, memory->text, key, value);
            free(memory->text);
            memory->text = read_text(memory->path);
        }
    }
    close(lock);
}
