/* Members of objects in files, by tables of what they may be. */
#ifndef LS_REPORT_MEMBERS_H
#define LS_REPORT_MEMBERS_H

#include "base/json.h"

enum { LS_MEMBER_TEXT_MAX = 512 };

typedef enum { LS_TEXT_MEMBER, LS_COUNT_MEMBER, LS_REAL_MEMBER, LS_FLAG_MEMBER } ls_member_kind;
typedef struct ls_member {
    const char *key;
    ls_member_kind kind;
    double low, high; /* of numbers */
} ls_member;

bool ls_member_fits(const ls_member *member, const json_t *value);
bool ls_member_is_text(const json_t *value); /* a short one */
/* LS_EINPUT: "PATH: `KEY` of WHERE must be ...". */
ls_status ls_member_refuse(ls_ctx *ctx, const char *path, const char *where, const char *key,
                           const char *must);
/* The members that are there; what the table does not name may be anything. */
ls_status ls_members_check(ls_ctx *ctx, const char *path, const char *where, const json_t *object,
                           const ls_member *members, size_t count);

#endif
