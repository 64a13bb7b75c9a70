// SPDX-License-Identifier: Apache-2.0
// What rows of the block store are measured against beside fio, which moves one buffer per thread,
// again and again: system calls alone, but on as much memory as the store moves.
//
//   files KIND FOLDERS NAME BYTES FILES THREADS DIRECT BLOCKS RANGES SCATTERED CALL -> nanos cpuNanos
//
// KIND is write or read, put or get, save or load.
//
// Files NAME.0 and so on, each of BYTES, are made, written whole and closed, or opened, read whole
// and closed, by THREADS threads that take the next file each. FOLDERS are the names of folders with
// colons between them; a file's number decides in which it is. Each file has a place of its own in a
// memory of FILES times BYTES, of huge pages as the engine's, which is touched before the time
// begins. DIRECT is 1 for O_DIRECT. No
// call of write, read, put and get moves more than CALL bytes.
//
// put and get do besides what no store can leave out that checks its bytes and gives names to
// complete files only: a put makes the checksum of what each call writes, just before it, in a file
// of another name in the folder of its thread, and renames that into one of SUBFOLDERS folders of
// limit-blocks, which is two folders above the first of FOLDERS; a get makes the checksum of what
// each call has read.
//
// save and load do it with the calls of the block store. A file has a header and BLOCKS blocks of
// RANGES ranges each, which lie in as many regions, and in the file region by region. SCATTERED is 1
// where the blocks of a file lie far from each other in a region, and 0 where they lie one behind the
// other. Adjacent ranges are moved as one. A save looks for the file's name, makes a file
// of another name, takes its room unless it is small, writes it, sets its time and renames it, as a
// put. Buffered it gathers the ranges in pieces and writes the header of a file with several pieces once more at the end; a load reads
// the header and then smaller pieces, which it scatters. Direct both copy through a buffer of each
// thread. The checksum costs what CRC32C costs in the JDK: four parts at once by carry-less
// multiplication of 512 bits where the processor has it, else three parts at once by the instruction
// for CRC32C; what would join the parts is left out. Elsewhere all bytes are added up.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    ARGUMENTS = 12,
    MOST_THREADS = 256,
    MOST_FOLDERS = 64,
    SUBFOLDERS = 16,
    ALIGNMENT = 4096,
    MOST_RANGES = 1024,
    SAVED_AT_ONCE = 1 << 20,
    LOADED_AT_ONCE = 256 << 10,
    LEAST_ALLOCATED = 128 << 10,
    HUGE_PAGE = 2 << 20,
};

// Greater than any number of blocks, so that its multiples give each block another place.
static const size_t PRIME = 2654435761;

// What a thread works with that checks its bytes; staging is the store's kind's only.
struct tools {
    const char *folder; // in which it makes files
    char *staging;
    struct iovec ranges[MOST_RANGES];
    int count;
    size_t listed; // bytes in the ranges
    uint64_t sum;  // of the bytes, see checksum
};

// How far a file has been moved between its ranges in memory.
struct place {
    long file;
    size_t range, within;
};

static char *memory;
static char *folders[MOST_FOLDERS];
static int folder_count;
static const char *name;
static size_t bytes, header, most_per_call;
static long files, blocks, ranges;
static int writes, checks, stores, direct, scattered, flags;
static atomic_long next_file;
static atomic_ulong sums; // so that no compiler leaves them out
static pthread_barrier_t begin;

static void die(const char *what) { perror(what); exit(1); }

static void cut(const char *path, size_t at) {
    fprintf(stderr, "%s is cut at %zu bytes\n", path, at);
    exit(1);
}

static uint64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t align(size_t n) { return (n + ALIGNMENT - 1) & -(size_t) ALIGNMENT; }

// Between a file and memory, in calls of at most `most` bytes.
static void move(int fd, const char *path, char *place, size_t length, off_t at, size_t most) {
    for (size_t done = 0; done < length;) {
        size_t wanted = least(length - done, most);
        ssize_t n = writes ? pwrite(fd, place + done, wanted, at + (off_t) done)
                           : pread(fd, place + done, wanted, at + (off_t) done);
        if (n < 0) die(path);
        if (n == 0) cut(path, (size_t) at + done);
        done += (size_t) n;
    }
}

static uint64_t word(const char *from, size_t index) {
    uint64_t w;
    memcpy(&w, from + index * sizeof w, sizeof w);
    return w;
}

static uint64_t added(const char *from, size_t words) {
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++) sum += word(from, i);
    return sum;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint64_t crc(const char *from, size_t words) {
    uint64_t a = 0, b = 0, c = 0;
    size_t third = words / 3;
    for (size_t i = 0; i < third; i++) {
        a = _mm_crc32_u64(a, word(from, i));
        b = _mm_crc32_u64(b, word(from, third + i));
        c = _mm_crc32_u64(c, word(from, 2 * third + i));
    }
    for (size_t i = 3 * third; i < words; i++) a = _mm_crc32_u64(a, word(from, i));
    return a ^ b ^ c;
}

#define MULTIPLIES __attribute__((target("avx512f,vpclmulqdq")))

// The factor is none of CRC32C's; any takes the same time.
MULTIPLIES static inline __m512i fold(__m512i part, const char *next) {
    const __m512i factor = _mm512_set1_epi64(0x740eef02);
    return _mm512_clmulepi64_epi128(part, factor, 0x00)
        ^ _mm512_clmulepi64_epi128(part, factor, 0x11) ^ _mm512_loadu_si512(next);
}

MULTIPLIES static uint64_t folded(const char *from, size_t words) {
    enum { PART = sizeof(__m512i), ALL = 4 * PART };
    __m512i a = {0}, b = {0}, c = {0}, d = {0};
    const char *end = from + words * sizeof(uint64_t);
    for (; end - from >= ALL; from += ALL) {
        a = fold(a, from);
        b = fold(b, from + PART);
        c = fold(c, from + 2 * PART);
        d = fold(d, from + 3 * PART);
    }
    return (uint64_t) _mm512_reduce_add_epi64(a ^ b ^ c ^ d)
        ^ crc(from, (size_t) (end - from) / sizeof(uint64_t));
}
#endif

static int multiplies, has_crc; // of the processor's instructions

static void look_at_processor(void) {
#ifdef __x86_64__
    multiplies = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    has_crc = __builtin_cpu_supports("sse4.2");
#endif
}

static void checksum(struct tools *t, const char *from, size_t length) {
    size_t words = length / sizeof(uint64_t);
#ifdef __x86_64__
    if (multiplies) t->sum += folded(from, words);
    else if (has_crc) t->sum += crc(from, words);
    else
#endif
        t->sum += added(from, words);
}

static char *address(const struct place *p) {
    size_t range = bytes / (size_t) (blocks * ranges), all = (size_t) (files * blocks);
    size_t block = (size_t) (p->file * blocks) + p->range % (size_t) blocks;
    if (scattered) block = block * PRIME % all;
    return memory + (p->range / (size_t) blocks * all + block) * range + p->within;
}

// The next ranges that lie one behind the other, as far as `most` bytes hold them.
static struct iovec next_range(struct place *p, size_t most) {
    size_t range = bytes / (size_t) (blocks * ranges);
    struct iovec v = {address(p), 0};
    do {
        size_t n = least(range - p->within, most - v.iov_len);
        v.iov_len += n;
        p->within += n;
        if (p->within == range) {
            p->within = 0;
            p->range++;
        }
    } while (v.iov_len < most && p->range < (size_t) (blocks * ranges)
             && address(p) == (char *) v.iov_base + v.iov_len);
    return v;
}

static void list(struct tools *t, struct iovec v) {
    t->ranges[t->count++] = v;
    t->listed += v.iov_len;
}

static void gather(int fd, struct tools *t, long file) {
    struct place p = {file, 0, 0};
    size_t end = header + bytes, at = 0;
    while (at < end) {
        t->count = 0;
        t->listed = 0;
        if (at == 0) list(t, (struct iovec) {t->staging, header});
        size_t from = at + t->listed, room = SAVED_AT_ONCE - from % SAVED_AT_ONCE;
        if (end - from <= room + SAVED_AT_ONCE / 4) room = end - from;
        while (room > 0 && from < end && t->count < MOST_RANGES - 1) {
            struct iovec v = next_range(&p, least(room, end - from));
            checksum(t, v.iov_base, v.iov_len);
            list(t, v);
            room -= v.iov_len;
            from += v.iov_len;
        }
        if (pwritev(fd, t->ranges, t->count, (off_t) at) != (ssize_t) t->listed) die("pwritev");
        if (at > 0 && from == end) move(fd, "the header", t->staging, header, 0, header);
        at = from;
    }
}

static void name_block(char path[PATH_MAX], long file) {
    snprintf(path, PATH_MAX, "%s/../../limit-blocks/%ld/%s.%ld", folders[0], file % SUBFOLDERS, name,
             file);
}

static void name_temporary(char path[PATH_MAX], long file, const struct tools *t) {
    snprintf(path, PATH_MAX, "%s/%s.%ld", t->folder, name, file);
}

static int open_file(const char *path) {
    int fd = open(path, flags, 0600);
    if (fd < 0) die(path);
    return fd;
}

static void close_file(int fd) {
    if (close(fd) < 0) die("close");
}

static void publish(const char *temporary, const char *path) {
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) < 0) die(path);
}

static void take_room(int fd) {
    size_t all = align(header + bytes);
    // What it is short of, the write tells.
    if (all >= LEAST_ALLOCATED && fallocate(fd, direct ? 0 : FALLOC_FL_KEEP_SIZE, 0, (off_t) all) < 0 && errno != EOPNOTSUPP) {
        perror("fallocate");
    }
}

static void save(long file, struct tools *t) {
    char temporary[PATH_MAX], path[PATH_MAX];
    name_temporary(temporary, file, t);
    name_block(path, file);
    struct statx found;
    if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &found) == 0) die(path);
    int fd = open_file(temporary);
    take_room(fd);
    if (direct) {
        struct place p = {file, 0, 0};
        for (size_t at = header; at < header + bytes;) {
            struct iovec v = next_range(&p, bytes);
            memcpy(t->staging + at, v.iov_base, v.iov_len);
            checksum(t, t->staging + at, v.iov_len);
            at += v.iov_len;
        }
        move(fd, temporary, t->staging, align(header + bytes), 0, SIZE_MAX);
    } else {
        gather(fd, t, file);
    }
    struct timespec times[2] = {{0, UTIME_OMIT}, {time(NULL), 0}};
    if (futimens(fd, times) < 0) die("futimens");
    close_file(fd);
    publish(temporary, path);
}

static void load(long file, struct tools *t) {
    char path[PATH_MAX];
    name_block(path, file);
    int fd = open_file(path);
    struct place p = {file, 0, 0};
    if (!direct) move(fd, path, t->staging, header, 0, SIZE_MAX);
    for (size_t at = 0; at < bytes;) {
        size_t piece = direct ? bytes : least(LOADED_AT_ONCE, bytes - at);
        size_t front = direct ? header : 0; // read together with the payload
        size_t wanted = front + piece;
        move(fd, path, t->staging, direct ? align(wanted) : wanted,
             (off_t) (direct ? 0 : header + at), SIZE_MAX);
        checksum(t, t->staging + front, piece);
        for (size_t done = 0; done < piece;) {
            struct iovec v = next_range(&p, piece - done);
            memcpy(v.iov_base, t->staging + front + done, v.iov_len);
            done += v.iov_len;
        }
        at += piece;
    }
    close_file(fd);
}

static char *place_of(long file) { return memory + (size_t) file * bytes; }

static void put(long file, struct tools *t) {
    char temporary[PATH_MAX], path[PATH_MAX];
    name_temporary(temporary, file, t);
    name_block(path, file);
    int fd = open_file(temporary);
    for (size_t at = 0; at < bytes; at += most_per_call) {
        size_t piece = least(bytes - at, most_per_call);
        checksum(t, place_of(file) + at, piece);
        move(fd, temporary, place_of(file) + at, piece, (off_t) at, piece);
    }
    close_file(fd);
    publish(temporary, path);
}

static void get(long file, struct tools *t) {
    char path[PATH_MAX];
    name_block(path, file);
    int fd = open_file(path);
    for (size_t at = 0; at < bytes; at += most_per_call) {
        size_t piece = least(bytes - at, most_per_call);
        move(fd, path, place_of(file) + at, piece, (off_t) at, piece);
        checksum(t, place_of(file) + at, piece);
    }
    close_file(fd);
}

static void move_whole(long file) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s.%ld", folders[file % folder_count], name, file);
    int fd = open_file(path);
    move(fd, path, place_of(file), bytes, 0, most_per_call);
    close_file(fd);
}

static void *work(void *tools) {
    pthread_barrier_wait(&begin);
    for (long file; (file = atomic_fetch_add(&next_file, 1)) < files;) {
        if (stores) (writes ? save : load)(file, tools);
        else if (checks) (writes ? put : get)(file, tools);
        else move_whole(file);
    }
    if (checks || stores) atomic_fetch_add(&sums, ((struct tools *) tools)->sum);
    return NULL;
}

static void map(size_t all) {
    char *base = mmap(NULL, all + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) die("mmap");
    memory = base + (-(uintptr_t) base & (HUGE_PAGE - 1));
    madvise(memory, all, MADV_HUGEPAGE); // where the kernel has none, pages are small
}

static struct tools *make_tools(int thread) {
    struct tools *t = calloc(1, sizeof *t);
    if (t == NULL) die("calloc");
    t->folder = folders[thread % folder_count];
    t->staging = aligned_alloc(ALIGNMENT, align(header + bytes));
    if (t->staging == NULL) die("aligned_alloc");
    memset(t->staging, 1, align(header + bytes));
    return t;
}

static void make_subfolders(void) {
    char path[PATH_MAX];
    for (int i = -1; i < SUBFOLDERS; i++) {
        if (i < 0) snprintf(path, sizeof path, "%s/../../limit-blocks", folders[0]);
        else snprintf(path, sizeof path, "%s/../../limit-blocks/%d", folders[0], i);
        if (mkdir(path, 0700) < 0 && errno != EEXIST) die(path);
    }
}

int main(int count, char **words) {
    if (count != ARGUMENTS) {
        fprintf(stderr, "see the head of files.c\n");
        return 2;
    }
    const char *kind = words[1];
    int known = 1;
    if (strcmp(kind, "write") == 0 || strcmp(kind, "put") == 0 || strcmp(kind, "save") == 0) writes = 1;
    else known = strcmp(kind, "read") == 0 || strcmp(kind, "get") == 0 || strcmp(kind, "load") == 0;
    checks = strcmp(kind, "put") == 0 || strcmp(kind, "get") == 0;
    stores = strcmp(kind, "save") == 0 || strcmp(kind, "load") == 0;
    for (char *at = words[2], *f; (f = strsep(&at, ":")) != NULL;) {
        if (folder_count < MOST_FOLDERS) folders[folder_count++] = f;
    }
    name = words[3];
    bytes = strtoull(words[4], NULL, 10);
    files = atol(words[5]);
    int threads = atoi(words[6]);
    direct = atoi(words[7]);
    blocks = atol(words[8]);
    ranges = atol(words[9]);
    scattered = atoi(words[10]);
    most_per_call = strtoull(words[11], NULL, 10);
    flags = (writes ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | O_CLOEXEC | (direct ? O_DIRECT : 0);
    if (!known || threads < 1 || threads > MOST_THREADS || files < 1 || blocks < 1 || ranges < 1 || most_per_call < 1
        || bytes < (size_t) (blocks * ranges) || bytes % (size_t) (blocks * ranges) != 0) {
        fprintf(stderr, "a word is unknown or a number out of range\n");
        return 2;
    }
    look_at_processor();
    header = ALIGNMENT;
    size_t all = (size_t) files * bytes;
    map(all);
    memset(memory, 1, all);
    if ((checks || stores) && writes) make_subfolders();
    pthread_t workers[MOST_THREADS];
    pthread_barrier_init(&begin, NULL, (unsigned) threads + 1);
    for (int i = 0; i < threads; i++) {
        struct tools *t = checks || stores ? make_tools(i) : NULL;
        if (pthread_create(&workers[i], NULL, work, t) != 0) die("pthread_create");
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
