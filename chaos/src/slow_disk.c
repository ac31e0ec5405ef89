/* A disk that is slow on request: loaded before the C library, it lets fsync and fdatasync take longer for as long as
   the file named by UNISONO_SLOW_DISK exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void delay(void) {
    const char *path = getenv("UNISONO_SLOW_DISK");
    if (path && access(path, F_OK) == 0) usleep(100 * 1000);
}

typedef int sync_call(int);

int fsync(int fd) {
    delay();
    return ((sync_call *)dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    delay();
    return ((sync_call *)dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
