/* The one clock that durations are measured with. */
#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

/* Seconds since some moment; never goes back. */
double ls_clock(void);

#endif
