/* Slots of memory that segments read and write (Memformer, arXiv 2010.06891): see
 * wrap/memformer.md. */
#ifndef LS_MODEL_SLOTS_H
#define LS_MODEL_SLOTS_H

#include "model/model.h"

/* What rows x [B,T,D] find in `context` [B,N,D], memory or other rows: attention to all of it. */
ls_tensor *ls_slots_read(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                         ls_tensor *context);
/* The parameter [k,D] with which sequences begin, and which is the bias of every update that
 * normalises. */
ls_tensor *ls_slots_start(ls_program *p, const ls_model_settings *about);
/* The slots [B,k,D] as they are read, of what is carried from segment to segment. */
ls_tensor *ls_slots_seen(ls_program *p, const ls_model_settings *about, ls_tensor *carried);
/* What is carried on, after a segment with these rows. valid: u8 [B,T], 0 for rows that are
 * padding; NULL: none is. */
ls_tensor *ls_slots_write(ls_program *p, const ls_model_settings *about, ls_tensor *memory,
                          ls_tensor *rows, ls_tensor *valid);

#endif
