// SPDX-License-Identifier: Apache-2.0
// A store with the functions of Mooncake's store_c.h, in memory, for tests. All handles of the process see one cluster.
// It does wrong what double_set says, and counts what a caller must not do.
#define _GNU_SOURCE
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum knob {
    FAIL_SETUP,      // code that setup answers
    CLOCK_MS,        // added to the clock
    HANG,            // calls of data and lookups do not return while it is 1
    FAIL_CALL,       // code that whole calls answer
    FAIL_ITEM,       // code that every item of a batch answers
    SHORT_READ,      // bytes that are missing at the end of what a get brings
    FLIP,            // how many of the next gets bring a wrong bit
    OTHER_OBJECT,    // how many of the next gets bring another object of the same size
    UNWRITTEN,       // the results of batches are not written
    HEALTH,          // answer of the health check
    CAPACITY,        // bytes that the cluster holds
    KNOBS
};
enum count { HANDLES, REGISTERED, MISUSES, CALLS, OBJECTS, HANGING, COUNTS };

#define LEASE_MS 10000
#define MOST_HANDLES 64
#define MOST_RANGES 64

struct object {
    struct object *next;
    char *key;
    char *bytes;
    size_t size;
    int64_t lease;
};
struct handle {
    int live, ready, calls;
    char *ranges[MOST_RANGES];
    size_t lengths[MOST_RANGES];
};
struct config {
    size_t replica_num;
    int with_soft_pin;
    int with_hard_pin;
    const char **preferred_segments;
    size_t preferred_segments_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int64_t knobs[KNOBS] = {[CAPACITY] = 64 << 20};
static int64_t counts[COUNTS];
static struct handle handles[MOST_HANDLES];
static struct object *objects;
static size_t used;
static char misuse[256];
static char preferred[256];

static void misused(const char *what) {
    counts[MISUSES]++;
    snprintf(misuse, sizeof misuse, "%s", what);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000 + knobs[CLOCK_MS];
}

// With the lock: begins a call, 0 or the code that it has to answer.
static int begin(struct handle *h) {
    counts[CALLS]++;
    if (h == NULL || !h->live || !h->ready) {
        misused("call on a handle that is not set up, or destroyed");
        return -1;
    }
    h->calls++;
    while (knobs[HANG]) {
        counts[HANGING]++;
        pthread_cond_wait(&changed, &lock);
        counts[HANGING]--;
    }
    return (int)knobs[FAIL_CALL];
}

static void end(struct handle *h) {
    if (h != NULL && h->live) h->calls--;
}

static struct object *find(const char *key) {
    for (struct object *o = objects; o; o = o->next)
        if (strcmp(o->key, key) == 0) return o;
    return NULL;
}

static void drop(struct object *gone) {
    for (struct object **o = &objects; *o; o = &(*o)->next)
        if (*o == gone) {
            *o = gone->next;
            used -= gone->size;
            counts[OBJECTS]--;
            free(gone->key);
            free(gone->bytes);
            free(gone);
            return;
        }
}

static int covers(struct handle *h, char *buffer, size_t size) {
    for (int i = 0; i < MOST_RANGES; i++)
        if (h->ranges[i] && buffer >= h->ranges[i] && buffer + size <= h->ranges[i] + h->lengths[i]) return 1;
    misused("memory that is not registered");
    return 0;
}

static int put(struct handle *h, const char *key, char *buffer, size_t size, const struct config *config) {
    if (knobs[FAIL_ITEM]) return (int)knobs[FAIL_ITEM];
    if (!covers(h, buffer, size)) return -600;
    if (!*key || !size || (config && config->replica_num < 1)) return -600;
    if (config && config->preferred_segments_count)
        snprintf(preferred, sizeof preferred, "%s", config->preferred_segments[0]);
    if (find(key)) return 0;
    if (used + size > (size_t)knobs[CAPACITY]) return -200;
    struct object *o = calloc(1, sizeof *o);
    o->key = strdup(key);
    o->bytes = memcpy(malloc(size), buffer, size);
    o->size = size;
    o->lease = now();
    o->next = objects;
    objects = o;
    used += size;
    counts[OBJECTS]++;
    return 0;
}

static int64_t get(struct handle *h, const char *key, char *buffer, size_t size) {
    if (knobs[FAIL_ITEM]) return knobs[FAIL_ITEM];
    if (!covers(h, buffer, size)) return -600;
    struct object *o = find(key);
    if (!o) return -704;
    if (o->size > size) return -600;
    o->lease = now() + LEASE_MS;
    struct object *source = o;
    if (knobs[OTHER_OBJECT] > 0)
        for (struct object *other = objects; other; other = other->next)
            if (other != o && other->size == o->size) {
                source = other;
                knobs[OTHER_OBJECT]--;
                break;
            }
    memcpy(buffer, source->bytes, source->size);
    if (knobs[FLIP] > 0) {
        knobs[FLIP]--;
        buffer[o->size / 2] ^= 1;
    }
    return (int64_t)o->size - knobs[SHORT_READ];
}

void *mooncake_store_create(void) {
    sigset_t blocked; // as the real one
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    pthread_mutex_lock(&lock);
    struct handle *made = NULL;
    for (int i = 0; i < MOST_HANDLES && !made; i++)
        if (!handles[i].live) made = &handles[i];
    if (made) {
        memset(made, 0, sizeof *made);
        made->live = 1;
        counts[HANDLES]++;
    }
    pthread_mutex_unlock(&lock);
    return made;
}

void mooncake_store_destroy(void *store) {
    struct handle *h = store;
    pthread_mutex_lock(&lock);
    if (!h->live) misused("destroyed twice");
    if (h->calls) misused("destroyed during a call");
    for (int i = 0; i < MOST_RANGES; i++)
        if (h->ranges[i]) counts[REGISTERED]--;
    h->live = 0;
    counts[HANDLES]--;
    pthread_mutex_unlock(&lock);
}

int mooncake_store_setup(
        void *store, const char *host, const char *metadata, uint64_t segment, uint64_t buffer, const char *protocol,
        const char *device, const char *master) {
    (void)segment, (void)buffer, (void)protocol, (void)device;
    pthread_mutex_lock(&lock);
    int code = (int)knobs[FAIL_SETUP];
    if (!*host || !*metadata || !*master) code = -600;
    if (!code) ((struct handle *)store)->ready = 1;
    pthread_mutex_unlock(&lock);
    return code;
}

#ifndef WITHOUT_TENANTS
int mooncake_store_setup_with_tenant(
        void *store, const char *host, const char *metadata, uint64_t segment, uint64_t buffer, const char *protocol,
        const char *device, const char *master, const char *tenant) {
    (void)tenant;
    return mooncake_store_setup(store, host, metadata, segment, buffer, protocol, device, master);
}
#endif

int mooncake_store_health_check(void *store) {
    (void)store;
    pthread_mutex_lock(&lock);
    int code = (int)knobs[HEALTH];
    pthread_mutex_unlock(&lock);
    return code;
}

int mooncake_store_batch_put_from(
        void *store, const char **keys, void **buffers, const size_t *sizes, size_t n, const struct config *config,
        int *results) {
    pthread_mutex_lock(&lock);
    int code = begin(store);
    for (size_t i = 0; !code && !knobs[UNWRITTEN] && i < n; i++)
        results[i] = put(store, keys[i], buffers[i], sizes[i], config);
    end(store);
    pthread_mutex_unlock(&lock);
    return code;
}

int mooncake_store_batch_get_into(
        void *store, const char **keys, void **buffers, const size_t *sizes, size_t n, int64_t *results) {
    pthread_mutex_lock(&lock);
    int code = begin(store);
    for (size_t i = 0; !code && !knobs[UNWRITTEN] && i < n; i++)
        results[i] = get(store, keys[i], buffers[i], sizes[i]);
    end(store);
    pthread_mutex_unlock(&lock);
    return code;
}

int mooncake_store_batch_is_exist(void *store, const char **keys, size_t n, int *results) {
    pthread_mutex_lock(&lock);
    int code = begin(store);
    for (size_t i = 0; !code && !knobs[UNWRITTEN] && i < n; i++) {
        struct object *o = find(keys[i]);
        if (o) o->lease = now() + LEASE_MS;
        results[i] = knobs[FAIL_ITEM] ? (int)knobs[FAIL_ITEM] : o != NULL;
    }
    end(store);
    pthread_mutex_unlock(&lock);
    return code;
}

int64_t mooncake_store_get_size(void *store, const char *key) {
    pthread_mutex_lock(&lock);
    int64_t code = begin(store);
    struct object *o = find(key);
    if (!code) code = o ? (int64_t)o->size : -704;
    if (o) o->lease = now() + LEASE_MS;
    end(store);
    pthread_mutex_unlock(&lock);
    return code;
}

int mooncake_store_remove(void *store, const char *key, int force) {
    pthread_mutex_lock(&lock);
    int code = begin(store);
    struct object *o = find(key);
    if (!code && !o) code = -704;
    if (!code && !force && o->lease > now()) code = -706;
    if (!code) drop(o);
    end(store);
    pthread_mutex_unlock(&lock);
    return code;
}

// The expressions of the caller are ECMAScript's; of that, groups that do not capture are known here.
int64_t mooncake_store_remove_by_regex(void *store, const char *pattern, int force) {
    char posix[4096];
    size_t at = 0;
    for (const char *c = pattern; *c && at < sizeof posix - 1; c++) {
        posix[at++] = *c;
        if (c[0] == '(' && c[1] == '?' && c[2] == ':') c += 2;
    }
    posix[at] = 0;
    regex_t expression;
    if (regcomp(&expression, posix, REG_EXTENDED | REG_NOSUB)) return -600;
    pthread_mutex_lock(&lock);
    int64_t code = begin(store);
    int64_t removed = 0;
    for (struct object *o = objects, *next; !code && o; o = next) {
        next = o->next;
        if (regexec(&expression, o->key, 0, NULL, 0) == 0 && (force || o->lease <= now())) {
            drop(o);
            removed++;
        }
    }
    end(store);
    pthread_mutex_unlock(&lock);
    regfree(&expression);
    return code ? code : removed;
}

int mooncake_store_register_buffer(void *store, void *buffer, size_t size) {
    struct handle *h = store;
    int code = -600;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_RANGES; i++)
        if (h->ranges[i] && h->ranges[i] < (char *)buffer + size && (char *)buffer < h->ranges[i] + h->lengths[i]) {
            misused("memory that overlaps what is registered");
            pthread_mutex_unlock(&lock);
            return code;
        }
    for (int i = 0; i < MOST_RANGES && code; i++)
        if (!h->ranges[i]) {
            h->ranges[i] = buffer;
            h->lengths[i] = size;
            counts[REGISTERED]++;
            code = 0;
        }
    pthread_mutex_unlock(&lock);
    return code;
}

int mooncake_store_unregister_buffer(void *store, void *buffer) {
    struct handle *h = store;
    int code = -600;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_RANGES; i++)
        if (h->ranges[i] == buffer) {
            h->ranges[i] = NULL;
            counts[REGISTERED]--;
            code = 0;
        }
    pthread_mutex_unlock(&lock);
    return code;
}

void double_set(int knob, int64_t value) {
    pthread_mutex_lock(&lock);
    knobs[knob] = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

int64_t double_count(int count) {
    pthread_mutex_lock(&lock);
    int64_t value = counts[count];
    pthread_mutex_unlock(&lock);
    return value;
}

const char *double_misuse(void) { return misuse; }

const char *double_preferred(void) { return preferred; }

// Flips a bit in the middle of every object; how many there are.
int64_t double_damage(void) {
    int64_t n = 0;
    pthread_mutex_lock(&lock);
    for (struct object *o = objects; o; o = o->next, n++) o->bytes[o->size / 2] ^= 1;
    pthread_mutex_unlock(&lock);
    return n;
}

// All objects go, and nothing is wrong any more; handles stay.
void double_reset(void) {
    pthread_mutex_lock(&lock);
    while (objects) drop(objects);
    memset(knobs, 0, sizeof knobs);
    knobs[CAPACITY] = 64 << 20;
    counts[MISUSES] = 0;
    misuse[0] = preferred[0] = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
