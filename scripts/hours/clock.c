/* Shifts the wall clock of the process that loads this by CLOCK_OFFSET_S seconds. The clock runs on.
 *
 * libfaketime will not do: it shows the real time while a call of its own waits, and PostgreSQL reads the clock in the
 * signal handlers that interrupt its waits. So lock_timeout and statement_timeout would never be due. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long offset;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void load(void)
{
    const char *text = getenv("CLOCK_OFFSET_S");
    offset = text ? atol(text) : 0;
    real_clock_gettime = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *shown)
{
    int failed = real_clock_gettime(clock, shown);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shown->tv_sec += offset;
    return failed;
}

int gettimeofday(struct timeval *restrict shown, void *restrict zone)
{
    struct timespec now;
    (void) zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    shown->tv_sec = now.tv_sec;
    shown->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *shown)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (shown)
        *shown = now.tv_sec;
    return now.tv_sec;
}
