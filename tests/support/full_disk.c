/* Preloaded into a process: writes below the path that is in the file FLAG fail as on a full
   disk. Without that file, or with an empty one, nothing changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int full(int file) {
    char below[4096], link[64], path[4096];
    int flag = syscall(SYS_openat, AT_FDCWD, FLAG, O_RDONLY | O_CLOEXEC);
    if (flag < 0)
        return 0;
    long length = syscall(SYS_read, flag, below, sizeof below - 1);
    syscall(SYS_close, flag);
    if (length <= 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    long found = readlink(link, path, sizeof path - 1);
    if (found < length || strncmp(path, below, length))
        return 0;
    errno = ENOSPC;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) {
    return full(file) ? -1 : REAL(write)(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    return full(file) ? -1 : REAL(writev)(file, parts, count);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    return full(file) ? -1 : REAL(pwrite)(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    return full(file) ? -1 : REAL(pwrite64)(file, data, size, at);
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    return full(to) ? -1 : REAL(sendfile)(to, from, at, size);
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
    return full(to) ? -1 : REAL(sendfile64)(to, from, at, size);
}

int ftruncate(int file, off_t size) {
    return size && full(file) ? -1 : REAL(ftruncate)(file, size);
}

int ftruncate64(int file, off64_t size) {
    return size && full(file) ? -1 : REAL(ftruncate64)(file, size);
}

int posix_fallocate(int file, off_t at, off_t size) {
    return full(file) ? ENOSPC : REAL(posix_fallocate)(file, at, size);
}
