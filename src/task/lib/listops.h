/* Tokens of ListOps, whether its lists are made or read. */
#ifndef LS_TASK_LIB_LISTOPS_H
#define LS_TASK_LIB_LISTOPS_H

enum {
    LS_LISTOPS_DIGITS = 10, /* 0 to 9 are themselves */
    LS_LISTOPS_MIN = LS_LISTOPS_DIGITS,
    LS_LISTOPS_MAX,
    LS_LISTOPS_MED,
    LS_LISTOPS_SUM,
    LS_LISTOPS_CLOSE,
    LS_LISTOPS_TOKENS
};

#endif
