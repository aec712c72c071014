/* The page at /, out of page.html (cmake/embed.cmake). */
#ifndef LS_SERVE_PAGE_H
#define LS_SERVE_PAGE_H

extern const char ls_serve_page[];

#endif
