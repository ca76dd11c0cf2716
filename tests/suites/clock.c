/* The clock of some processes, set ahead or back by the seconds in the file LIMBECK_CLOCK; what measures durations goes
   on as it did. Preloaded by the kill suite: the library faketime makes every sleep of Python fail in this mode. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*true_time)(clockid_t, struct timespec *);

static long shift(void) {
    char text[32];
    const char *path = getenv("LIMBECK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_time) true_time = dlsym(RTLD_NEXT, "clock_gettime");
    int status = true_time(clock, now);
    if (!status && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    int status = clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return status;
}

time_t time(time_t *place) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}
