// SPDX-License-Identifier: Apache-2.0
// What rows of the block store are measured against beside fio, which moves one buffer per thread,
// again and again: system calls alone, but on as much memory as the store moves.
//
//   files write|read FOLDER NAME BYTES FILES THREADS DIRECT   -> nanos cpuNanos
//
// Files FOLDER/NAME.0 and so on, each of BYTES, are made, written whole and closed, or opened, read
// whole and closed, by THREADS threads that take the next file each. Each file has a place of its
// own in a memory of FILES times BYTES, which is touched before the time begins. DIRECT is 1 for
// O_DIRECT.
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS = 8, MOST_THREADS = 256 };

static char *memory;
static const char *folder, *name;
static size_t bytes;
static long files;
static int writes, flags;
static atomic_long next_file;
static pthread_barrier_t begin;

static void die(const char *what) { perror(what); exit(1); }

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static void move(long file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.%ld", folder, name, file);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0) die(path);
    char *place = memory + (size_t) file * bytes;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = writes ? pwrite(fd, place + done, bytes - done, (off_t) done)
                           : pread(fd, place + done, bytes - done, (off_t) done);
        if (n < 0) die(path);
        if (n == 0) {
            fprintf(stderr, "%s is cut at %zu bytes\n", path, done);
            exit(1);
        }
        done += (size_t) n;
    }
    if (close(fd) < 0) die("close");
}

static void *work(void *unused) {
    (void) unused;
    pthread_barrier_wait(&begin);
    for (long file; (file = atomic_fetch_add(&next_file, 1)) < files;) move(file);
    return NULL;
}

int main(int count, char **words) {
    if (count != ARGUMENTS) {
        fprintf(stderr, "see the head of files.c\n");
        return 2;
    }
    writes = strcmp(words[1], "write") == 0;
    folder = words[2];
    name = words[3];
    bytes = strtoull(words[4], NULL, 10);
    files = atol(words[5]);
    int threads = atoi(words[6]);
    flags = (writes ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | (atoi(words[7]) ? O_DIRECT : 0);
    if (threads < 1 || threads > MOST_THREADS || files < 1 || bytes < 1) {
        fprintf(stderr, "a number is out of range\n");
        return 2;
    }
    size_t all = (size_t) files * bytes;
    memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    memset(memory, 1, all);
    pthread_t workers[MOST_THREADS];
    pthread_barrier_init(&begin, NULL, (unsigned) threads + 1);
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&workers[i], NULL, work, NULL) != 0) die("pthread_create");
    }
    uint64_t cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t start = now(CLOCK_MONOTONIC);
    pthread_barrier_wait(&begin);
    for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
    uint64_t end = now(CLOCK_MONOTONIC);
    printf("%llu %llu\n", (unsigned long long) (end - start),
           (unsigned long long) (now(CLOCK_PROCESS_CPUTIME_ID) - cpu));
    return 0;
}
