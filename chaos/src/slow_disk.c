/* A disk that is slow or hangs on request: loaded before the C library. As long as the file named by UNISONO_SLOW_DISK exists,
   fsync and fdatasync take longer; as long as that named by UNISONO_HUNG_DISK exists, they and writes to files do not return.
   What a process says on its standard output and error does not go to its disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int is_asked(const char *name) {
    const char *path = getenv(name);
    return path && access(path, F_OK) == 0;
}

static void hang(void) {
    while (is_asked("UNISONO_HUNG_DISK")) usleep(2 * 1000);
}

static void hang_if_file(int fd) {
    struct stat found;
    if (fd > 2 && is_asked("UNISONO_HUNG_DISK") && fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) hang();
}

static void delay(void) {
    if (is_asked("UNISONO_SLOW_DISK")) usleep(100 * 1000);
    hang();
}

typedef int sync_call(int);
typedef ssize_t write_call(int, const void *, size_t);
typedef ssize_t pwrite_call(int, const void *, size_t, off64_t);
typedef int rename_call(const char *, const char *);

int fsync(int fd) {
    delay();
    return ((sync_call *)dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
    delay();
    return ((sync_call *)dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    static write_call *next;
    if (!next) next = (write_call *)dlsym(RTLD_NEXT, "write");
    hang_if_file(fd);
    return next(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    static pwrite_call *next;
    if (!next) next = (pwrite_call *)dlsym(RTLD_NEXT, "pwrite64");
    hang_if_file(fd);
    return next(fd, bytes, count, offset);
}

int rename(const char *from, const char *to) {
    hang();
    return ((rename_call *)dlsym(RTLD_NEXT, "rename"))(from, to);
}
