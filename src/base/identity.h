/* What this was built from: a hash of all its sources, made by the build (cmake/identity.cmake). */
#ifndef LS_BASE_IDENTITY_H
#define LS_BASE_IDENTITY_H

extern const char ls_identity[]; /* 64 hexadecimal digits */

#endif
