// SPDX-License-Identifier: Apache-2.0
// What a benchmark row is measured against: a C program that moves the same ranges between the same
// number of processes, threads and connections, with gathering writes and nothing to check.
//
//   limit serve BYTES PAGES         prints its port; serves until its input ends
//   limit drive BYTES PAGES PORT    obeys lines on its input, answers each with one line:
//     move write|read THREADS LANES BLOCK BATCH ROUNDS   -> nanos cpuNanosHere cpuNanosThere
//     copy THREADS LANES BLOCK BATCH ROUNDS              -> nanos cpuNanos 0
//     ping REPLY COUNT                                   -> p50 p99 (nanos)
//   limit cpu PROGRAM ARGS...       runs it and prints "@cpu nanos" of it behind its output
//
// PAGES says what the memory is made of, as the engine's is: `huge` is memory of this process alone that
// begins at a multiple of 2 MiB and is advised to have huge pages, `shared` is small pages that other
// processes could map. Every page is touched before the first line is obeyed. No thread is bound to a
// processor, in neither program. Threads and connections that one row needed serve the next, as those of
// the engine do; each row is begun with a quarter of its rounds, which are not measured.
//
// A message is `u32 kind, u32 count`, `count` times `u64 offset, u64 bytes`, and for a WRITE the
// bytes. A WRITE is answered by 8 bytes, a READ by the bytes, a question by the processor time.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, READ = 2, CPU = 3, MOST_RANGES = 4096, MOST_VECTORS = 256, MOST_LANES = 256, SOCKET_BUFFER = 512 << 10 };
static const size_t CALL_BYTES = 512 << 10, HUGE_PAGE = 2 << 20;

struct range { uint64_t offset, bytes; };
struct head { uint32_t kind, count; };

static char *memory;
static size_t memory_bytes;

static void die(const char *what) { perror(what); exit(1); }

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static int huge;

static char *pages(size_t bytes, int content) {
    size_t room = huge ? bytes + HUGE_PAGE : bytes;
    char *made = mmap(NULL, room, PROT_READ | PROT_WRITE, (huge ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) die("mmap");
    if (huge) {
        made = (char *) (((uintptr_t) made + HUGE_PAGE - 1) & ~(uintptr_t) (HUGE_PAGE - 1));
        if (madvise(made, bytes, MADV_HUGEPAGE) != 0) perror("no huge pages");
    }
    memset(made, content, bytes);
    return made;
}

static int allocate(const char *bytes, const char *kind) {
    huge = strcmp(kind, "huge") == 0;
    if (!huge && strcmp(kind, "shared") != 0) return -1;
    memory_bytes = strtoull(bytes, NULL, 10);
    memory = pages(memory_bytes, 1);
    return 0;
}

static int read_all(int fd, void *to, size_t bytes) {
    char *at = to;
    while (bytes > 0) {
        ssize_t got = read(fd, at, bytes);
        if (got <= 0) return -1;
        at += got;
        bytes -= (size_t) got;
    }
    return 0;
}

static int write_all(int fd, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes > 0) {
        ssize_t put = write(fd, at, bytes);
        if (put <= 0) return -1;
        at += put;
        bytes -= (size_t) put;
    }
    return 0;
}

// Moves all bytes of the ranges, as many per call as fit; `first` goes ahead of what is written.
static int move(int fd, int writing, const void *first, size_t first_bytes, const struct range *ranges, uint32_t count) {
    uint32_t next = 0;
    uint64_t done = 0;
    while (next < count || first_bytes > 0) {
        struct iovec vector[MOST_VECTORS];
        int used = 0;
        size_t gathered = 0;
        if (first_bytes > 0) {
            vector[used++] = (struct iovec) {(void *) first, first_bytes};
            gathered = first_bytes;
        }
        uint64_t skip = done;
        for (uint32_t i = next; i < count && used < MOST_VECTORS && gathered < CALL_BYTES; i++) {
            size_t bytes = ranges[i].bytes - skip;
            if (bytes > CALL_BYTES - gathered) bytes = CALL_BYTES - gathered;
            vector[used++] = (struct iovec) {memory + ranges[i].offset + skip, bytes};
            gathered += bytes;
            skip = 0;
        }
        ssize_t moved = writing ? writev(fd, vector, used) : readv(fd, vector, used);
        if (moved <= 0) return -1;
        size_t rest = (size_t) moved;
        size_t head = rest < first_bytes ? rest : first_bytes;
        first = (const char *) first + head;
        first_bytes -= head;
        rest -= head;
        while (rest > 0) {
            uint64_t left = ranges[next].bytes - done;
            uint64_t part = rest < left ? rest : left;
            done += part;
            rest -= part;
            if (done == ranges[next].bytes) {
                next++;
                done = 0;
            }
        }
    }
    return 0;
}

// As the engine's connections within a host: not paced, as the system's BBR would. LIMIT_CONGESTION names another one.
// Only what a socket has before it is connected counts: see CongestionControl.java.
static const char *congestion(void) {
    static char name[32] = "";
    const char *given = getenv("LIMIT_CONGESTION");
    if (given != NULL) return given;
    FILE *system = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
    if (system == NULL) return name;
    if (fscanf(system, "%31s", name) == 1 && strcmp(name, "cubic") != 0) strcpy(name, "reno");
    fclose(system);
    return name;
}

static void unpace(int fd) {
    const char *control = congestion();
    if (*control != 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, strlen(control)) != 0) perror(control);
}

static void prepare(int fd) {
    int one = 1, bytes = SOCKET_BUFFER;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void *serve_one(void *argument) {
    int fd = (int) (intptr_t) argument;
    struct range *ranges = malloc(sizeof(struct range) * MOST_RANGES);
    struct head head;
    while (read_all(fd, &head, sizeof head) == 0) {
        uint64_t answer = head.kind == CPU ? now(CLOCK_PROCESS_CPUTIME_ID) : 0;
        if (head.count > MOST_RANGES || read_all(fd, ranges, sizeof(struct range) * head.count) != 0) break;
        int bad = 0;
        for (uint32_t i = 0; i < head.count; i++)
            bad |= ranges[i].offset > memory_bytes || ranges[i].bytes > memory_bytes - ranges[i].offset;
        if (bad) break;
        if (head.kind == READ) {
            if (move(fd, 1, NULL, 0, ranges, head.count) != 0) break;
        } else {
            if (head.kind == WRITE && move(fd, 0, NULL, 0, ranges, head.count) != 0) break;
            if (write_all(fd, &answer, sizeof answer) != 0) break;
        }
    }
    free(ranges);
    close(fd);
    return NULL;
}

static void *accept_all(void *argument) {
    int listener = (int) (intptr_t) argument;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        prepare(fd);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve_one, (void *) (intptr_t) fd) != 0) die("pthread_create");
        pthread_detach(thread);
    }
    return NULL;
}

static int serve(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    unpace(listener);
    if (bind(listener, (struct sockaddr *) &address, length) != 0 || listen(listener, 64) != 0
            || getsockname(listener, (struct sockaddr *) &address, &length) != 0)
        die("listen");
    pthread_t thread;
    if (pthread_create(&thread, NULL, accept_all, (void *) (intptr_t) listener) != 0) die("pthread_create");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    while (getchar() != EOF) { }
    return 0;
}

static int port;

static int dial(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    unpace(fd);
    if (connect(fd, (struct sockaddr *) &address, sizeof address) != 0) die("connect");
    prepare(fd);
    return fd;
}

// One lane of one thread of a row: its part of the ranges, round after round. Its thread and its connection
// stay for the rows behind.
struct lane {
    pthread_t thread;
    sem_t go;
    pthread_barrier_t *begin, *together;
    int kind, fd, rounds;
    uint32_t count;
    struct range *ranges;
    char *copied; // of a memory copy: where to
    char *message;
    size_t message_bytes;
};

static struct lane pool[MOST_LANES];
static int pooled;
static sem_t ended;

static void run_row(struct lane *lane) {
    for (int round = -lane->rounds / 4 - 1; round < lane->rounds; round++) {
        if (round == 0) pthread_barrier_wait(lane->begin); // what came before was the warm-up
        uint64_t answer;
        if (lane->copied != NULL) {
            for (uint32_t i = 0; i < lane->count; i++)
                memcpy(lane->copied + lane->ranges[i].offset, memory + lane->ranges[i].offset, lane->ranges[i].bytes);
        } else if (lane->kind == WRITE) {
            if (move(lane->fd, 1, lane->message, lane->message_bytes, lane->ranges, lane->count) != 0
                    || read_all(lane->fd, &answer, sizeof answer) != 0)
                die("write");
        } else if (write_all(lane->fd, lane->message, lane->message_bytes) != 0
                || move(lane->fd, 0, NULL, 0, lane->ranges, lane->count) != 0) {
            die("read");
        }
        pthread_barrier_wait(lane->together); // the transfer has ended when its last lane has
    }
}

static void *run_rows(void *argument) {
    struct lane *lane = argument;
    for (;;) {
        while (sem_wait(&lane->go) != 0) { }
        run_row(lane);
        sem_post(&ended);
    }
    return NULL;
}

static struct lane *lane(int number, int connected) {
    for (; pooled <= number; pooled++) {
        struct lane *fresh = &pool[pooled];
        fresh->fd = -1;
        sem_init(&fresh->go, 0, 0);
        if (pthread_create(&fresh->thread, NULL, run_rows, fresh) != 0) die("pthread_create");
    }
    if (connected && pool[number].fd < 0) pool[number].fd = dial();
    return &pool[number];
}

static uint64_t cpu_there(int fd) {
    struct head head = {CPU, 0};
    uint64_t answer = 0;
    if (fd >= 0 && (write_all(fd, &head, sizeof head) != 0 || read_all(fd, &answer, sizeof answer) != 0)) die("cpu");
    return answer;
}

// Thread t of `threads` has blocks t, t + threads, ...; its lanes share the bytes of these evenly.
static void cut(struct lane *lane, int number, int lanes, int t, int threads, uint64_t block, int batch) {
    uint64_t total = block * (uint64_t) batch;
    uint64_t from = total * (uint64_t) number / (uint64_t) lanes, to = total * (uint64_t) (number + 1) / (uint64_t) lanes;
    lane->ranges = malloc(sizeof(struct range) * (size_t) (batch + 1));
    lane->count = 0;
    for (uint64_t at = from; at < to;) {
        uint64_t index = at / block, within = at % block;
        uint64_t bytes = block - within < to - at ? block - within : to - at;
        lane->ranges[lane->count++] = (struct range) {(index * (uint64_t) threads + (uint64_t) t) * block + within, bytes};
        at += bytes;
    }
    struct head head = {(uint32_t) lane->kind, lane->count};
    lane->message_bytes = sizeof head + sizeof(struct range) * lane->count;
    lane->message = malloc(lane->message_bytes);
    memcpy(lane->message, &head, sizeof head);
    memcpy(lane->message + sizeof head, lane->ranges, sizeof(struct range) * lane->count);
}

static void row(int kind, int threads, int lanes, uint64_t block, int batch, int rounds, char *copied) {
    static int question = -1;
    int all = threads * lanes;
    if (all > MOST_LANES) die("too many lanes");
    pthread_barrier_t begin, *together = calloc((size_t) threads, sizeof *together);
    pthread_barrier_init(&begin, NULL, (unsigned) all + 1);
    for (int t = 0; t < threads; t++) pthread_barrier_init(&together[t], NULL, (unsigned) lanes);
    if (copied == NULL && question < 0) question = dial();
    for (int i = 0; i < all; i++) {
        struct lane *one = lane(i, copied == NULL);
        one->kind = kind;
        one->rounds = rounds;
        one->begin = &begin;
        one->together = &together[i / lanes];
        one->copied = copied;
        cut(one, i % lanes, lanes, i / lanes, threads, block, batch);
    }
    for (int i = 0; i < all; i++) sem_post(&pool[i].go);
    pthread_barrier_wait(&begin);
    int asked = copied == NULL ? question : -1;
    uint64_t began = now(CLOCK_MONOTONIC), here = now(CLOCK_PROCESS_CPUTIME_ID), there = cpu_there(asked);
    for (int i = 0; i < all; i++) while (sem_wait(&ended) != 0) { }
    uint64_t took = now(CLOCK_MONOTONIC) - began;
    here = now(CLOCK_PROCESS_CPUTIME_ID) - here;
    printf("%llu %llu %llu\n", (unsigned long long) took, (unsigned long long) here,
           (unsigned long long) (cpu_there(asked) - there));
    for (int i = 0; i < all; i++) {
        free(pool[i].ranges);
        free(pool[i].message);
    }
    free(together);
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return x < y ? -1 : x > y;
}

static void ping(uint64_t reply, int count) {
    int fd = dial();
    uint64_t *nanos = malloc(sizeof(uint64_t) * (size_t) count);
    struct { struct head head; struct range range; } message = {{READ, 1}, {0, reply}};
    for (int i = -count / 4; i < count; i++) {
        uint64_t began = now(CLOCK_MONOTONIC);
        if (write_all(fd, &message, sizeof message) != 0 || read_all(fd, memory, reply) != 0) die("ping");
        if (i >= 0) nanos[i] = now(CLOCK_MONOTONIC) - began;
    }
    qsort(nanos, (size_t) count, sizeof *nanos, by_size);
    printf("%llu %llu\n", (unsigned long long) nanos[count / 2], (unsigned long long) nanos[(size_t) count * 99 / 100]);
    free(nanos);
    close(fd);
}

static int drive(void) {
    char *line = NULL, *copied = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        char kind[8];
        int threads, lanes, batch, rounds, count;
        unsigned long long block;
        if (sscanf(line, "move %7s %d %d %llu %d %d", kind, &threads, &lanes, &block, &batch, &rounds) == 6) {
            row(strcmp(kind, "write") == 0 ? WRITE : READ, threads, lanes, block, batch, rounds, NULL);
        } else if (sscanf(line, "copy %d %d %llu %d %d", &threads, &lanes, &block, &batch, &rounds) == 5) {
            if (copied == NULL) copied = pages(memory_bytes, 2);
            row(WRITE, threads, lanes, block, batch, rounds, copied);
        } else if (sscanf(line, "ping %llu %d", &block, &count) == 2) {
            ping(block, count);
        } else {
            fprintf(stderr, "not understood: %s", line);
            return 1;
        }
        fflush(stdout);
    }
    free(line);
    return 0;
}

static int cpu(char **command) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(command[0], command);
        die(command[0]);
    }
    int status;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) != child) die("wait4");
    long long nanos = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL
            + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
    printf("\n@cpu %lld\n", nanos);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int count, char **words) {
    if (count > 2 && strcmp(words[1], "cpu") == 0) return cpu(words + 2);
    if (count < 4 || allocate(words[2], words[3]) != 0) return 2;
    if (strcmp(words[1], "serve") == 0) return serve();
    if (strcmp(words[1], "drive") != 0 || count < 5) return 2;
    port = atoi(words[4]);
    return drive();
}
