// SPDX-License-Identifier: Apache-2.0
// A stand-in for Mooncake's transfer engine behind its C API: engines of one process copy between their registered
// memories. It keeps the rules of the real one that callers get wrong: a batch can be freed only after every task was
// polled to its end, notifications are passed by value, a task needs some polls. Some lengths
// misbehave: length 666 fails, length 777 never ends until a task of length 778 was submitted, and
// does not again after one of length 779; nothing is known of a task of length 781;
// one of length 782 is refused when those before it have begun; one of length 783 is not begun before the first byte
// at its source is set.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <unistd.h>

struct transfer_request { int opcode; void *source; int32_t target_id; uint64_t target_offset; uint64_t length; };
struct transfer_status { int status; uint64_t transferred_bytes; };
struct notify_msg { char *name; char *msg; };
_Static_assert(sizeof(struct transfer_request) == 40, "transfer_request");
_Static_assert(sizeof(struct transfer_status) == 16, "transfer_status");
_Static_assert(sizeof(struct notify_msg) == 16, "notify_msg");

#define MAX_ENGINES 64
#define MAX_REGIONS 64
#define MAX_NOTES 1024

struct engine {
    int port, transport, regions, notes, live_batches;
    char host[64];
    struct { char *addr; uint64_t len; } region[MAX_REGIONS];
    struct notify_msg note[MAX_NOTES];
};
struct task { struct transfer_request request; int polls, state, seen; };
struct batch { struct engine *owner; size_t capacity, count; struct task task[]; };

static struct engine *engines[MAX_ENGINES];
static int released;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void unlock(int *unused) { (void) unused; pthread_mutex_unlock(&lock); }
// Holds the one lock to the end of the function: every function may be called from any thread.
#define LOCKED __attribute__((cleanup(unlock))) int locked = pthread_mutex_lock(&lock); (void) locked

void *createTransferEngine(const char *metadata, const char *name, const char *ip, uint64_t port, int auto_discover) {
    if (strcmp(metadata, "P2PHANDSHAKE") != 0 || auto_discover != 0 || strlen(name) == 0) return NULL;
    LOCKED;
    struct engine *e = NULL;
    for (int i = 0; i < MAX_ENGINES && !e; i++) {
        if (!engines[i]) {
            e = engines[i] = calloc(1, sizeof(struct engine));
            e->port = 15000 + i;
            snprintf(e->host, sizeof(e->host), "%s", ip);
        }
    }
    return e;
}

void destroyTransferEngine(void *engine) {
    LOCKED;
    struct engine *e = engine;
    if (e->live_batches != 0) { fprintf(stderr, "destroyed with %d live batches\n", e->live_batches); abort(); }
    engines[e->port - 15000] = NULL;
    free(e);
}

int getLocalIpAndPort(void *engine, char *buffer, size_t length) {
    struct engine *e = engine;
    snprintf(buffer, length, "%s:%d", e->host, e->port);
    return 0;
}

void *installTransport(void *engine, const char *protocol, void **args) {
    if (strcmp(protocol, "tcp") == 0 && args == NULL) { ((struct engine *) engine)->transport = 1; return engine; }
    if (strcmp(protocol, "rdma") == 0 && args && strcmp(args[0], "{\"cpu:0\": [[\"mlx5_0\",\"mlx5_1\"], []]}") == 0) {
        ((struct engine *) engine)->transport = 2;
        return engine;
    }
    return NULL;
}

int32_t openSegment(void *engine, const char *name) {
    LOCKED;
    (void) engine;
    const char *colon = strrchr(name, ':');
    int slot = colon ? atoi(colon + 1) - 15000 : -1;
    return slot >= 0 && slot < MAX_ENGINES && engines[slot] ? slot : -1;
}

int registerLocalMemory(void *engine, void *addr, size_t length, const char *location, int remote) {
    LOCKED;
    struct engine *e = engine;
    if (length == 0 || strcmp(location, "*") != 0 || remote != 1 || e->regions == MAX_REGIONS) return -1;
    for (int i = 0; i < e->regions; i++)
        if ((char *) addr < e->region[i].addr + e->region[i].len && e->region[i].addr < (char *) addr + length) return -7;
    e->region[e->regions].addr = addr;
    e->region[e->regions++].len = length;
    return 0;
}

int unregisterLocalMemory(void *engine, void *addr) {
    LOCKED;
    struct engine *e = engine;
    for (int i = 0; i < e->regions; i++)
        if (e->region[i].addr == addr) { e->region[i] = e->region[--e->regions]; return 0; }
    return -3;
}

uint64_t allocateBatchID(void *engine, size_t capacity) {
    LOCKED;
    struct batch *b = calloc(1, sizeof(struct batch) + capacity * sizeof(struct task));
    b->owner = engine;
    b->capacity = capacity;
    __atomic_add_fetch(&b->owner->live_batches, 1, __ATOMIC_SEQ_CST);
    return (uint64_t) b;
}

int submitTransfer(void *engine, uint64_t id, struct transfer_request *requests, size_t count) {
    for (size_t i = 0; i < count; i++)
        while (requests[i].length == 783 && *(volatile char *) requests[i].source == 0) usleep(1000);
    LOCKED;
    (void) engine;
    struct batch *b = (struct batch *) id;
    if (b->count + count > b->capacity) return 2;
    for (size_t i = 0; i < count; i++) {
        if (requests[i].length == 782) return 1;
        b->task[b->count++].request = requests[i];
        if (requests[i].length == 778) released = 1;
        if (requests[i].length == 779) released = 0;
    }
    return 0;
}

static int inside(struct engine *e, char *addr, uint64_t length) {
    for (int i = 0; e && i < e->regions; i++)
        if (addr >= e->region[i].addr && addr + length <= e->region[i].addr + e->region[i].len) return 1;
    return 0;
}

int getTransferStatus(void *engine, uint64_t id, size_t index, struct transfer_status *status) {
    LOCKED;
    struct batch *b = (struct batch *) id;
    if (index >= b->count || b->task[index].request.length == 781) return 1;
    struct task *t = &b->task[index];
    if (t->state == 0 && ++t->polls > 3 && (t->request.length != 777 || released)) {
        struct engine *target = engines[t->request.target_id];
        char *remote = (char *) t->request.target_offset;
        if (t->request.length == 666 || !inside(target, remote, t->request.length)
            || !inside(engine, t->request.source, t->request.length)) {
            t->state = 6;
        } else {
            if (t->request.opcode == 1) memcpy(remote, t->request.source, t->request.length);
            else memcpy(t->request.source, remote, t->request.length);
            t->state = 4;
        }
    }
    if (t->state != 0) t->seen = 1;
    status->status = t->state;
    status->transferred_bytes = t->state == 4 ? t->request.length : 0;
    return 0;
}

int freeBatchID(void *engine, uint64_t id) {
    LOCKED;
    struct batch *b = (struct batch *) id;
    for (size_t i = 0; i < b->count; i++)
        if (!b->task[i].seen) return 4;
    __atomic_sub_fetch(&((struct engine *) engine)->live_batches, 1, __ATOMIC_SEQ_CST);
    free(b);
    return 0;
}

int genNotifyInEngine(void *engine, uint64_t segment, struct notify_msg message) {
    LOCKED;
    (void) engine;
    struct engine *target = segment < MAX_ENGINES ? engines[segment] : NULL;
    if (!target || target->notes == MAX_NOTES) return -1;
    target->note[target->notes].name = strdup(message.name);
    target->note[target->notes++].msg = strdup(message.msg);
    return 0;
}

struct notify_msg *getNotifsFromEngine(void *engine, int *size) {
    LOCKED;
    struct engine *e = engine;
    *size = e->notes;
    if (e->notes == 0) return NULL;
    struct notify_msg *copy = malloc(sizeof(struct notify_msg) * e->notes);
    memcpy(copy, e->note, sizeof(struct notify_msg) * e->notes);
    e->notes = 0;
    return copy;
}

void freeNotifsMsgBuf(struct notify_msg *messages, int size) {
    for (int i = 0; i < size; i++) { free(messages[i].name); free(messages[i].msg); }
    free(messages);
}
