/* The page at /, out of page.html. */
#ifndef LS_SERVE_PAGE_H
#define LS_SERVE_PAGE_H

#include <stddef.h>

extern const unsigned char ls_serve_page[];
extern const size_t ls_serve_page_bytes;

#endif
