/* More processors than a machine has, as the system tells programs: as many as LIMBECK_TOLD_CORES says. Preloaded by the
   suite of demos: a run then plans as on a machine of that size, and its processes share the true processors. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int told(void) {
    const char *text = getenv("LIMBECK_TOLD_CORES");
    return text ? atoi(text) : 0;
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *mask) {
    int (*true_mask)(pid_t, size_t, cpu_set_t *) = dlsym(RTLD_NEXT, "sched_getaffinity");
    int status = true_mask(process, size, mask);
    for (int core = 0; !status && core < told(); core++) CPU_SET_S(core, size, mask);
    return status;
}

long sysconf(int name) {
    long (*true_value)(int) = dlsym(RTLD_NEXT, "sysconf");
    long value = true_value(name);
    return name == _SC_NPROCESSORS_ONLN && told() > value ? told() : value;
}
