#include "disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal.h"
#include "scene.h"

enum { SECTOR = 512 };

typedef struct node node;

typedef struct entry {
    char *name;
    node *at;
} entry;

typedef struct names {
    entry *list;
    size_t count;
} names;

/* A change of a folder: `gone` loses its place, `name` gets it. */
typedef struct change {
    char *gone, *name; /* NULL: nothing */
    node *at;
} change;

/* A change of a file: bytes at a place, or a length. */
typedef struct patch {
    uint64_t offset, length;
    char *bytes; /* NULL: a length */
} patch;

typedef struct content {
    char *bytes;
    size_t length;
} content;

struct node {
    uint64_t inode;
    bool folder;
    names now, certain;
    change *changes;
    size_t change_count;
    content synced;
    patch *patches;
    size_t patch_count;
    node *next; /* of all that there ever were */
};

struct disk {
    node *all, root;
    bool deaf; /* fsync does nothing */
};

static void *grown(void *list, size_t count, size_t each) {
    void *larger = realloc(list, (count + 1) * each);
    if (larger == NULL) die("no memory");
    return larger;
}

static char *copied(const char *text, size_t length) {
    char *copy = malloc(length + 1);
    if (copy == NULL) die("no memory");
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* ---- names ---- */

static entry *find(const names *n, const char *name) {
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->list[i].name, name) == 0) return &n->list[i];
    return NULL;
}

static void take_out(names *n, const char *name) {
    entry *there = find(n, name);
    if (there == NULL) return;
    free(there->name);
    *there = n->list[--n->count];
}

static void put_in(names *n, const char *name, node *at) {
    take_out(n, name);
    n->list = grown(n->list, n->count, sizeof *n->list);
    n->list[n->count++] = (entry){copied(name, strlen(name)), at};
}

static void names_clear(names *n) {
    for (size_t i = 0; i < n->count; i++) free(n->list[i].name);
    free(n->list);
    *n = (names){0};
}

static names names_copy(const names *from) {
    names to = {0};
    for (size_t i = 0; i < from->count; i++) put_in(&to, from->list[i].name, from->list[i].at);
    return to;
}

static void make_change(names *n, const change *c) {
    if (c->gone != NULL) take_out(n, c->gone);
    if (c->name != NULL) put_in(n, c->name, c->at);
}

static void add_change(node *folder, const char *gone, const char *name, node *at) {
    const change c = {gone == NULL ? NULL : copied(gone, strlen(gone)),
                      name == NULL ? NULL : copied(name, strlen(name)), at};
    folder->changes = grown(folder->changes, folder->change_count, sizeof *folder->changes);
    folder->changes[folder->change_count++] = c;
    make_change(&folder->now, &c);
}

static void forget_changes(node *n) {
    for (size_t i = 0; i < n->change_count; i++) {
        free(n->changes[i].gone);
        free(n->changes[i].name);
    }
    free(n->changes);
    n->changes = NULL;
    n->change_count = 0;
}

/* ---- bytes ---- */

static void set_length(content *c, size_t length) {
    if (length > c->length) {
        c->bytes = realloc(c->bytes, length);
        if (c->bytes == NULL) die("no memory");
        memset(c->bytes + c->length, 0, length - c->length);
    }
    c->length = length;
}

static void add_patch(node *file, uint64_t offset, const char *bytes, uint64_t length) {
    file->patches = grown(file->patches, file->patch_count, sizeof *file->patches);
    file->patches[file->patch_count++] =
        (patch){offset, length, bytes == NULL ? NULL : copied(bytes, length)};
}

static void forget_patches(node *n) {
    for (size_t i = 0; i < n->patch_count; i++) free(n->patches[i].bytes);
    free(n->patches);
    n->patches = NULL;
    n->patch_count = 0;
}

/* A dice that falls the same way for the same seed. */
typedef struct dice {
    disk_luck luck;
    uint64_t seed;
} dice;

static bool survives(dice *d, bool is_name) {
    switch (d->luck) {
    case DISK_NOTHING:
        return false;
    case DISK_NAMES:
        return is_name;
    case DISK_BYTES:
        return !is_name;
    case DISK_EVERYTHING:
        return true;
    case DISK_SOME:
        break;
    }
    d->seed = mix(d->seed + 1);
    return (d->seed >> 20 & 1) == 1;
}

/* A write reaches the disk in sectors; the file's length is a thing of its own. */
static void make_patch(content *c, const patch *p, dice *d) {
    const bool length_survives = survives(d, false);
    if (p->bytes == NULL) {
        if (length_survives) set_length(c, p->offset);
        return;
    }
    const size_t end = p->offset + p->length;
    if (length_survives && end > c->length) set_length(c, end);
    for (size_t at = p->offset; at < end;) {
        size_t next = (at / SECTOR + 1) * SECTOR;
        if (next > end) next = end;
        if (survives(d, false) && next <= c->length)
            memcpy(c->bytes + at, p->bytes + (at - p->offset), next - at);
        at = next;
    }
}

static content surviving_bytes(const node *file, dice *d) {
    content c = {copied(file->synced.bytes == NULL ? "" : file->synced.bytes, file->synced.length),
                 file->synced.length};
    for (size_t i = 0; i < file->patch_count; i++) make_patch(&c, &file->patches[i], d);
    return c;
}

static void sync_node(node *n) {
    if (n->folder) {
        names_clear(&n->certain);
        n->certain = names_copy(&n->now);
        forget_changes(n);
    } else {
        dice whole = {DISK_EVERYTHING, 0};
        content c = surviving_bytes(n, &whole);
        free(n->synced.bytes);
        n->synced = c;
        forget_patches(n);
    }
}

/* ---- the journal ---- */

/* The folder that a path lies in, and its last part. */
static node *parent_of(disk *d, char *path, const char **last) {
    node *here = &d->root;
    char *part = path;
    for (char *slash; (slash = strchr(part, '/')) != NULL; part = slash + 1) {
        *slash = '\0';
        const entry *e = find(&here->now, part);
        if (e == NULL || !e->at->folder) die("the journal names a strange folder: %s", path);
        here = e->at;
    }
    *last = part;
    return here;
}

static node *node_of(disk *d, uint64_t inode) {
    if (inode == d->root.inode) return &d->root;
    for (node *n = d->all; n != NULL; n = n->next) /* the newest first: numbers are used again */
        if (n->inode == inode) return n;
    return NULL;
}

static void create(disk *d, const journal_record *r, char *path) {
    const char *last;
    node *folder = parent_of(d, path, &last), *made = calloc(1, sizeof *made);
    if (made == NULL) die("no memory");
    *made = (node){.inode = r->inode, .folder = r->kind == JOURNAL_FOLDER, .next = d->all};
    d->all = made;
    add_change(folder, NULL, last, made);
}

static void move(disk *d, char *path, char *other) {
    const char *from, *to;
    node *source = parent_of(d, path, &from), *target = parent_of(d, other, &to);
    const entry *e = find(&source->now, from);
    if (e == NULL) die("the journal renames what is not there: %s", from);
    node *at = e->at;
    if (source == target) {
        add_change(source, from, to, at);
    } else {
        add_change(source, from, NULL, NULL);
        add_change(target, NULL, to, at);
    }
}

static void drop(disk *d, char *path) {
    const char *last;
    node *folder = parent_of(d, path, &last);
    add_change(folder, last, NULL, NULL);
}

static void change_node(disk *d, const journal_record *r, const char *bytes) {
    node *n = node_of(d, r->inode);
    if (n == NULL) die("the journal names an inode that was never made");
    if (r->kind == JOURNAL_SYNC && !d->deaf)
        sync_node(n);
    else if (r->kind != JOURNAL_SYNC)
        add_patch(n, r->offset, r->kind == JOURNAL_WRITE ? bytes : NULL, r->length);
}

size_t disk_apply(disk *d, const char *at, size_t left) {
    journal_record r;
    if (left < sizeof r) die("the journal is cut off");
    memcpy(&r, at, sizeof r);
    const size_t data = r.kind == JOURNAL_WRITE ? r.length : 0;
    const size_t whole = sizeof r + r.path_bytes + r.other_bytes + data;
    if (left < whole) die("the journal is cut off");
    char *path = copied(at + sizeof r, r.path_bytes);
    char *other = copied(at + sizeof r + r.path_bytes, r.other_bytes);
    switch ((journal_kind)r.kind) {
    case JOURNAL_FILE:
    case JOURNAL_FOLDER:
        create(d, &r, path);
        break;
    case JOURNAL_RENAME:
        move(d, path, other);
        break;
    case JOURNAL_REMOVE:
        drop(d, path);
        break;
    case JOURNAL_WRITE:
    case JOURNAL_TRUNCATE:
    case JOURNAL_SYNC:
        change_node(d, &r, at + sizeof r + r.path_bytes + r.other_bytes);
        break;
    }
    free(path);
    free(other);
    return whole;
}

/* ---- after the cut ---- */

static void write_node(const node *n, dice *d, const char *path) {
    if (!n->folder) {
        content c = surviving_bytes(n, d);
        write_whole(path, c.bytes, c.length);
        free(c.bytes);
        return;
    }
    names there = names_copy(&n->certain);
    for (size_t i = 0; i < n->change_count; i++)
        if (survives(d, true)) make_change(&there, &n->changes[i]);
    make_folder(path);
    for (size_t i = 0; i < there.count; i++) {
        char inner[PATH_BYTES];
        snprintf(inner, sizeof inner, "%s/%s", path, there.list[i].name);
        write_node(there.list[i].at, d, inner);
    }
    names_clear(&there);
}

void disk_write(const disk *d, disk_luck luck, uint64_t seed, const char *folder) {
    dice fall = {luck, mix(seed)};
    write_node(&d->root, &fall, folder);
}

long disk_certain_step(const disk *d) {
    const entry *run = find(&d->root.now, "run");
    const entry *kept = run == NULL ? NULL : find(&run->at->now, "checkpoints");
    long step = -1;
    for (size_t i = 0; kept != NULL && i < kept->at->certain.count; i++) {
        const entry *e = &kept->at->certain.list[i];
        char *end;
        if (strncmp(e->name, "step-", 5) != 0) continue;
        const long number = strtol(e->name + 5, &end, 10);
        if (*end == '\0' && number > step) step = number;
    }
    return step;
}

disk *disk_new(uint64_t root) {
    disk *d = calloc(1, sizeof *d);
    if (d == NULL) die("no memory");
    d->root.folder = true;
    d->root.inode = root;
    return d;
}

void disk_heeds_sync(disk *d, bool heeds) {
    d->deaf = !heeds;
}

static void node_clear(node *n) {
    names_clear(&n->now);
    names_clear(&n->certain);
    forget_changes(n);
    forget_patches(n);
    free(n->synced.bytes);
}

void disk_free(disk *d) {
    for (node *n = d->all, *next; n != NULL; n = next) {
        next = n->next;
        node_clear(n);
        free(n);
    }
    node_clear(&d->root);
    free(d);
}
