/* The progress thread: it runs programs that were started while their callers do something else.

   A process has one, made when it is first needed. A program that was given to it is run by nobody
   else until it is taken back. Nothing here knows Python. */

#ifndef MPICOLL_PROGRESS_H
#define MPICOLL_PROGRESS_H

#include "program.h"

/* Give a program in the middle of a run; `now`: even if that takes a call of the system, else within
   a millisecond. 0 where there is no thread: none can be made, or the process ends. */
int progress_give(Program *program, int now);

/* Take a program back, given or not, at the end of the row that is under way. */
void progress_take(Program *program);

/* The same, but 0 instead of waiting for the end of a row. */
int progress_try_take(Program *program);

/* Run nothing any more. */
void progress_stop(void);

#endif
