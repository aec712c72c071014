/* How the Long Range Arena and S4 turn pixels, bytes and characters into tokens. */
#ifndef LS_TASK_LIB_READERS_H
#define LS_TASK_LIB_READERS_H

#include "task/lib/records.h"

/* The grey tone of a colour: as TensorFlow computes it for LRA, and as Pillow does for S4. */
int32_t ls_grey_lra(uint8_t red, uint8_t green, uint8_t blue);
int32_t ls_grey_s4(uint8_t red, uint8_t green, uint8_t blue);
/* The next token of a list, both readers': parentheses are left out, ] is X. False at the end. */
bool ls_listops_token(ls_bytes *rest, ls_bytes *out);

#endif
