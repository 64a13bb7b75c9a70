// SPDX-License-Identifier: Apache-2.0
// Stands in for libnccl.so.2 and for the streams and memory of a GPU, within one process, or (ACROSS) between two of one
// host, over a connection of loopback. It moves bytes between the two ranks of a communicator as NCCL does: non-blocking calls that are in progress for a while, operations that run on
// streams in order and wait for their match, an abort that frees one side alone. What real NCCL would answer with a hang
// or with wrong bytes is counted as misuse here, with the first reason kept for the test. Blocking communicators, and
// operations outside of groups, are for vLLM's wrapper alone.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { MOST = 4096, MOST_OPS = 2048 };

typedef struct { char internal[128]; } unique_id;

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga, min_ctas, max_ctas;
  const char *net;
  int split_share, traffic_class;
  const char *name;
  int collnet, cta_policy, shrink_share, nvls_ctas;
} config;

typedef struct { int sends; char *buffer; size_t bytes; } op;
typedef struct { op *list; int count; } group;
typedef struct pair pair;

typedef struct comm {
  pair *of;
  int rank, in_progress, finalizing, finalized, aborted, error, running, blocking;
  long thread;
  group *pending;  // ended on the host, not yet enqueued on its stream
  struct stream *pending_stream;
} comm;

struct pair {
  unique_id id;
  comm *rank[2];
  op *head[2];  // what each rank's stream waits with: the operations of its group, and how many are left
  int left[2], joined;
  int across, listener, connection;  // sockets; the ranks are in two processes
  pair *next;
};

typedef struct task {
  int kind;  // 0 copy, 1 group, 2 mark
  void *to;
  const void *from;
  size_t bytes;
  comm *of;
  group *ops;
  long ticket;
  struct task *next;
} task;

typedef struct stream {
  pthread_t thread;
  task *first, *last;
  long marked, reached;
  int closing;
} stream;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pair *pairs;
static comm *comms[MOST];
static struct { char *at; size_t bytes; } memory[MOST];
static char misuse[256];

// Knobs and counts, by number; see NcclDouble.java.
enum { INIT_POLLS, GROUP_POLLS, HANG_INIT, FAIL_INIT, FAIL_GROUP, STALL, DELAY_US, FLIP, VERSION, FAIL_RANK, HANG_GROUP, ACROSS, KNOBS };
enum { LIVE_COMMS, LIVE_BYTES, LIVE_STREAMS, MISUSES, GROUPS, SENDS, RECEIVES, ABORTS, DESTROYS, IDS, INITS, LARGEST_GROUP, COUNTS };
static long knobs[KNOBS], counts[COUNTS];

static __thread int depth;
static __thread comm *group_comm;
static __thread stream *group_stream;
static __thread group *open_group;

static void wrong(const char *what) {  // under the lock
  if (!counts[MISUSES]++) snprintf(misuse, sizeof misuse, "%s", what);
}

static int live(comm *c) {
  for (int i = 0; i < MOST; i++) if (comms[i] == c) return c != NULL;
  return 0;
}

static int on_device(const char *at, size_t bytes) {
  for (int i = 0; i < MOST; i++)
    if (memory[i].at && at >= memory[i].at && at + bytes <= memory[i].at + memory[i].bytes) return 1;
  return 0;
}

// A call for a communicator that is idle, from its thread.
static int fit(comm *c, const char *call) {
  char text[128];
  if (!live(c)) snprintf(text, sizeof text, "%s of a communicator that is none", call);
  else if (c->thread != syscall(SYS_gettid)) snprintf(text, sizeof text, "%s from another thread", call);
  else if (c->in_progress) snprintf(text, sizeof text, "%s while in progress", call);
  else if (c->aborted) snprintf(text, sizeof text, "%s after an abort", call);
  else return !c->error;  // the caller may not have seen the error yet
  wrong(text);
  return 0;
}

void double_set(int knob, long value) {
  pthread_mutex_lock(&lock);
  knobs[knob] = value;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

long double_count(int count) {
  pthread_mutex_lock(&lock);
  long value = counts[count];
  pthread_mutex_unlock(&lock);
  return value;
}

const char *double_misuse(void) { return misuse; }

void double_reset(void) {
  pthread_mutex_lock(&lock);
  memset(knobs, 0, sizeof knobs);
  long kept[3] = {counts[LIVE_COMMS], counts[LIVE_BYTES], counts[LIVE_STREAMS]};
  memset(counts, 0, sizeof counts);
  memcpy(counts, kept, sizeof kept);
  misuse[0] = 0;
  pthread_mutex_unlock(&lock);
}

// ---- device memory and streams

char *double_allocate(long bytes) {
  char *at = malloc(bytes);
  memset(at, 0x5a, bytes);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++)
    if (!memory[i].at) { memory[i].at = at; memory[i].bytes = bytes; break; }
  counts[LIVE_BYTES] += bytes;
  pthread_mutex_unlock(&lock);
  return at;
}

void double_free(char *at) {
  int found = 0;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; i++)
    if (memory[i].at == at) { counts[LIVE_BYTES] -= memory[i].bytes; memory[i].at = NULL; found = 1; break; }
  if (!found) wrong("free of memory that is none");
  pthread_mutex_unlock(&lock);
  if (found) free(at);
}

static void match(pair *p) {  // under the lock: copies what both ranks wait with
  for (int i = 0; i < 2; i++) if (p->rank[i] && p->rank[i]->error) return;
  for (int from = 0; from < 2; from++) {
    int to = 1 - from;
    while (p->left[from] && p->left[to] && p->head[from]->sends && !p->head[to]->sends) {
      op *s = p->head[from], *r = p->head[to];
      if (s->bytes != r->bytes) {
        wrong("a send and its receive differ in size");
        for (int i = 0; i < 2; i++) if (p->rank[i]) p->rank[i]->error = INVALID_USAGE;
        return;
      }
      if (!on_device(s->buffer, s->bytes) || !on_device(r->buffer, r->bytes)) {
        wrong("an operation on memory that is none");
        return;
      }
      memcpy(r->buffer, s->buffer, s->bytes);
      if (knobs[FLIP] > 0 && !--knobs[FLIP]) r->buffer[r->bytes / 2] ^= 1;
      p->head[from]++, p->head[to]++, p->left[from]--, p->left[to]--;
      pthread_cond_broadcast(&changed);
    }
    if (p->left[0] && p->left[1] && p->head[0]->sends == p->head[1]->sends) {
      wrong("both ranks send, or both receive: a hang");
      for (int i = 0; i < 2; i++) if (p->rank[i]) p->rank[i]->error = INVALID_USAGE;
      return;
    }
  }
}

// ---- two processes

static const char across_mark[8] = "ACROSS1";

static int is_aborted(comm *c) {
  pthread_mutex_lock(&lock);
  int aborted = c->aborted;
  pthread_mutex_unlock(&lock);
  return aborted;
}

static int listen_for_peer(unsigned short *port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)&at, &size)) abort();
  *port = at.sin_port;
  return fd;
}

static void *meet_peer(void *arg) {  // rank 0 accepts, rank 1 connects; who never meets it waits for an abort, as NCCL
  comm *c = arg;
  pair *p = c->of;
  int fd = -1;
  while (fd < 0 && !is_aborted(c)) {
    if (c->rank == 0) {
      struct pollfd until = {p->listener, POLLIN, 0};
      poll(&until, 1, 5);
      fd = accept(p->listener, NULL, NULL);
    } else {
      struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
      memcpy(&to.sin_port, p->id.internal + sizeof across_mark, sizeof to.sin_port);
      fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(fd, (struct sockaddr *)&to, sizeof to)) { close(fd); fd = -1; poll(NULL, 0, 5); }
    }
  }
  if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
  pthread_mutex_lock(&lock);
  p->connection = fd;
  if (fd >= 0) p->joined = 3;
  c->running--;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static int move(comm *c, char *at, size_t bytes, int sends) {  // 0 when the peer is gone, or after an abort
  int fd = c->of->connection;
  while (bytes > 0 && !is_aborted(c)) {
    struct pollfd until = {fd, sends ? POLLOUT : POLLIN, 0};
    if (poll(&until, 1, 5) == 0) continue;
    ssize_t n = sends ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);
    if (n > 0) at += n, bytes -= n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR)) return 0;
  }
  return bytes == 0;
}

static void run_across(comm *c, group *g) {  // under the lock
  for (int i = 0; i < g->count && !c->aborted && !c->error; i++) {
    op *o = &g->list[i];
    if (!on_device(o->buffer, o->bytes)) { wrong("an operation on memory that is none"); break; }
    uint64_t here = o->bytes, there = o->bytes;
    pthread_mutex_unlock(&lock);
    int said = move(c, (char *)(o->sends ? &here : &there), sizeof here, o->sends);
    int moved = said && here == there && move(c, o->buffer, o->bytes, o->sends);
    pthread_mutex_lock(&lock);
    if (said && here != there) wrong("a send and its receive differ in size");
    if (!moved && !c->aborted) {  // as over sockets, or as over shared memory, where nothing is heard of a death
      if (c->of->connection % 2) c->error = REMOTE_ERROR;
      while (!c->aborted) pthread_cond_wait(&changed, &lock);
    }
  }
}

static void run_group(comm *c, group *g) {  // under the lock
  pair *p = c->of;
  if (p->across) {
    run_across(c, g);
  } else if (!c->aborted) {
    if (p->left[c->rank]) wrong("two groups of one communicator at once");
    p->head[c->rank] = g->list;
    p->left[c->rank] = g->count;
    int counts_here = !knobs[FAIL_RANK] || knobs[FAIL_RANK] == 1 + c->rank;
    if (knobs[FAIL_GROUP] > 0 && counts_here && !--knobs[FAIL_GROUP]) c->error = REMOTE_ERROR;
    while (p->left[c->rank] && !c->aborted) {
      if (!knobs[STALL] && !c->error) match(p);
      if (p->left[c->rank] && !c->aborted) pthread_cond_wait(&changed, &lock);
    }
    p->left[c->rank] = 0;
  }
  c->running--;
  free(g->list);
  free(g);
  pthread_cond_broadcast(&changed);
}

static void *run_stream(void *arg) {
  stream *s = arg;
  unsigned seed = (unsigned)(uintptr_t)s;
  pthread_mutex_lock(&lock);
  while (1) {
    while (!s->first && !s->closing) pthread_cond_wait(&changed, &lock);
    task *t = s->first;
    if (!t) break;
    if (knobs[DELAY_US]) {
      struct timespec pause = {0, 1000L * (rand_r(&seed) % knobs[DELAY_US])};
      pthread_mutex_unlock(&lock);
      nanosleep(&pause, NULL);
      pthread_mutex_lock(&lock);
    }
    if (t->kind == 0) {
      const char *device = on_device(t->to, t->bytes) ? t->to : t->from;
      if (!on_device(device, t->bytes)) wrong("a copy to or from memory that is none");
      else memcpy(t->to, t->from, t->bytes);
    } else if (t->kind == 1) {
      run_group(t->of, t->ops);
    } else {
      s->reached = t->ticket;
    }
    s->first = t->next;
    if (!s->first) s->last = NULL;
    free(t);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

static void enqueue(stream *s, task t) {  // under the lock
  task *copy = malloc(sizeof t);
  *copy = t;
  copy->next = NULL;
  if (s->last) s->last->next = copy; else s->first = copy;
  s->last = copy;
  pthread_cond_broadcast(&changed);
}

stream *double_stream(void) {
  stream *s = calloc(1, sizeof *s);
  pthread_create(&s->thread, NULL, run_stream, s);
  pthread_mutex_lock(&lock);
  counts[LIVE_STREAMS]++;
  pthread_mutex_unlock(&lock);
  return s;
}

void double_close_stream(stream *s) {
  pthread_mutex_lock(&lock);
  s->closing = 1;
  counts[LIVE_STREAMS]--;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  pthread_join(s->thread, NULL);
  free(s);
}

void double_copy(stream *s, void *to, const void *from, long bytes) {
  pthread_mutex_lock(&lock);
  enqueue(s, (task){.kind = 0, .to = to, .from = from, .bytes = bytes});
  pthread_mutex_unlock(&lock);
}

void double_mark(stream *s) {
  pthread_mutex_lock(&lock);
  enqueue(s, (task){.kind = 2, .ticket = ++s->marked});
  pthread_mutex_unlock(&lock);
}

int double_reached(stream *s) {
  pthread_mutex_lock(&lock);
  int reached = s->reached == s->marked;
  pthread_mutex_unlock(&lock);
  return reached;
}

// ---- nccl.h

int ncclGetVersion(int *version) {
  *version = knobs[VERSION] ? (int)knobs[VERSION] : 22703;
  return SUCCESS;
}

const char *ncclGetErrorString(int result) {
  static const char *texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                "invalid argument", "invalid usage", "remote process exited or there was a network error",
                                "NCCL operation in progress"};
  return result >= 0 && result < 8 ? texts[result] : "unknown";
}

const char *ncclGetLastError(comm *c) { (void)c; return "(double)"; }

int ncclGetUniqueId(unique_id *id) {
  pthread_mutex_lock(&lock);
  pair *p = calloc(1, sizeof *p);
  FILE *random = fopen("/dev/urandom", "r");
  size_t read = fread(p->id.internal, 1, sizeof p->id.internal, random);
  fclose(random);
  if (knobs[ACROSS]) {
    unsigned short port;
    p->across = 1;
    p->listener = listen_for_peer(&port);
    p->connection = -1;
    memcpy(p->id.internal, across_mark, sizeof across_mark);
    memcpy(p->id.internal + sizeof across_mark, &port, sizeof port);
  }
  p->next = pairs;
  pairs = p;
  *id = p->id;
  counts[IDS]++;
  pthread_mutex_unlock(&lock);
  return read == sizeof p->id.internal ? SUCCESS : SYSTEM_ERROR;
}

static int well_formed(const config *how) {
  int version;
  ncclGetVersion(&version);
  size_t size = version >= 22703 ? sizeof(config) : 48;
  if (how->size != size || how->magic != 0xcafebeef || how->version > (unsigned)version) {
    wrong("a config of another form");
    return 0;
  }
  if (how->blocking != 0 || how->net || how->split_share != INT_MIN || how->cga != INT_MIN
      || (size > 48 && (how->name || how->nvls_ctas != INT_MIN || how->traffic_class != INT_MIN))) {
    wrong("a config with fields out of place");
    return 0;
  }
  return 1;
}

static int init(comm **out, int ranks, unique_id id, int rank, const config *how) {  // how: NULL for a blocking one
  pthread_mutex_lock(&lock);
  counts[INITS]++;
  *out = NULL;
  pair *p = pairs;
  while (p && memcmp(&p->id, &id, sizeof id)) p = p->next;
  if (!p && knobs[ACROSS] && !memcmp(id.internal, across_mark, sizeof across_mark)) {
    p = calloc(1, sizeof *p);
    p->id = id;
    p->across = 1;
    p->listener = p->connection = -1;
    p->next = pairs;
    pairs = p;
  }
  if (!p) wrong("an id that was never given out: its 128 bytes were changed");
  else if (ranks != 2 || rank < 0 || rank > 1 || p->joined & 1 << rank) wrong("a rank that does not exist or has joined");
  else if (!how || well_formed(how)) {
    comm *c = calloc(1, sizeof *c);
    c->of = p;
    c->rank = rank;
    c->thread = syscall(SYS_gettid);
    c->blocking = !how;
    c->in_progress = how ? 1 + knobs[INIT_POLLS] : 0;
    p->rank[rank] = c;
    p->joined |= 1 << rank;
    for (int i = 0; i < MOST; i++) if (!comms[i]) { comms[i] = c; break; }
    counts[LIVE_COMMS]++;
    if (p->across) {
      pthread_t thread;
      c->running++;
      pthread_create(&thread, NULL, meet_peer, c);
      pthread_detach(thread);
    }
    while (c->blocking && p->joined != 3) pthread_cond_wait(&changed, &lock);
    *out = c;
  }
  pthread_mutex_unlock(&lock);
  return *out ? SUCCESS : INVALID_ARGUMENT;
}

int ncclCommInitRankConfig(comm **out, int ranks, unique_id id, int rank, config *how) {
  int result = init(out, ranks, id, rank, how);
  return result == SUCCESS ? IN_PROGRESS : result;
}

int ncclCommInitRank(comm **out, int ranks, unique_id id, int rank) { return init(out, ranks, id, rank, NULL); }

static void launch(comm *c) {  // under the lock
  c->running++;
  enqueue(c->pending_stream, (task){.kind = 1, .of = c, .ops = c->pending});
  c->pending = NULL;
}

int ncclCommGetAsyncError(comm *c, int *state) {
  pthread_mutex_lock(&lock);
  if (!live(c) || c->thread != syscall(SYS_gettid)) {
    wrong("a query of a communicator that is none, or from another thread");
    pthread_mutex_unlock(&lock);
    return INVALID_ARGUMENT;
  }
  if (c->in_progress > 0 && !c->error) {
    int initializing = !c->pending && !c->finalizing;
    if (!initializing || (c->of->joined == 3 && !knobs[HANG_INIT])) c->in_progress--;
    if (initializing && knobs[FAIL_INIT] && c->in_progress == 0) c->error = SYSTEM_ERROR;
    if (c->in_progress == 0 && c->pending && !c->error) {  // launched only now
      launch(c);
    }
    if (c->in_progress == 0 && c->finalizing) c->finalized = 1;
  }
  *state = c->error ? c->error : c->in_progress > 0 ? IN_PROGRESS : SUCCESS;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}

int ncclCommCount(comm *c, int *count) {
  pthread_mutex_lock(&lock);
  int ok = fit(c, "count");
  *count = 2;
  pthread_mutex_unlock(&lock);
  return ok ? SUCCESS : INVALID_ARGUMENT;
}

int ncclCommUserRank(comm *c, int *rank) {
  pthread_mutex_lock(&lock);
  int ok = fit(c, "rank");
  *rank = ok ? c->rank : -1;
  pthread_mutex_unlock(&lock);
  return ok ? SUCCESS : INVALID_ARGUMENT;
}

int ncclGroupStart(void) {
  if (depth++ == 0) {
    open_group = calloc(1, sizeof *open_group);
    open_group->list = calloc(MOST_OPS, sizeof(op));
    group_comm = NULL;
  }
  return SUCCESS;
}

static size_t element_bytes(int type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? bytes[type] : 0;
}

static int add(int sends, char *buffer, size_t count, int type, int peer, comm *c, stream *s) {
  int result = INVALID_USAGE;
  size_t bytes = count * element_bytes(type);
  pthread_mutex_lock(&lock);
  if (depth != 1) wrong("an operation outside of a group, or in a nested one");
  else if (!fit(c, sends ? "send" : "receive")) {}
  else if (!c->blocking && type != 1) wrong("not bytes");
  else if (peer != 1 - c->rank) wrong("not the other rank");
  else if (bytes == 0 || !on_device(buffer, bytes)) wrong("no bytes, or not in device memory");
  else if (open_group->count == MOST_OPS) wrong("more than 2048 operations in a group");
  else if (group_comm && (group_comm != c || group_stream != s)) wrong("a group of two communicators or streams");
  else {
    group_comm = c;
    group_stream = s;
    open_group->list[open_group->count++] = (op){sends, buffer, bytes};
    counts[sends ? SENDS : RECEIVES]++;
    result = SUCCESS;
  }
  pthread_mutex_unlock(&lock);
  return result;
}


int ncclGroupEnd(void) {
  pthread_mutex_lock(&lock);
  int result = IN_PROGRESS;
  if (depth-- != 1 || !group_comm) {
    wrong("the end of no group, or of an empty one");
    result = INVALID_USAGE;
  } else {
    counts[GROUPS]++;
    comm *c = group_comm;
    c->running++;  // not freed under this call
    if (knobs[HANG_GROUP] > 0 && !--knobs[HANG_GROUP])
      while (!c->aborted) pthread_cond_wait(&changed, &lock);
    c->running--;
    pthread_cond_broadcast(&changed);
    if (c->aborted) {
      free(open_group->list);
      free(open_group);
      open_group = NULL;
      pthread_mutex_unlock(&lock);
      return INTERNAL_ERROR;
    }
    if (open_group->count > counts[LARGEST_GROUP]) counts[LARGEST_GROUP] = open_group->count;
    group_comm->pending = open_group;
    group_comm->pending_stream = group_stream;
    open_group = NULL;
    if (c->blocking) {
      launch(c);
      result = SUCCESS;
    } else {
      c->in_progress = 1 + knobs[GROUP_POLLS];
    }
  }
  pthread_mutex_unlock(&lock);
  return result;
}

static int blocks(comm *c) {
  pthread_mutex_lock(&lock);
  int blocking = live(c) && c->blocking;
  pthread_mutex_unlock(&lock);
  return blocking;
}

static int operate(int sends, char *buffer, size_t count, int type, int peer, comm *c, stream *s) {
  int alone = depth == 0 && blocks(c);  // a group of its own
  if (alone) ncclGroupStart();
  int result = add(sends, buffer, count, type, peer, c, s);
  int ended = alone ? ncclGroupEnd() : SUCCESS;
  return result != SUCCESS ? result : ended;
}

int ncclSend(char *buffer, size_t count, int type, int peer, comm *c, stream *s) {
  return operate(1, buffer, count, type, peer, c, s);
}

int ncclRecv(char *buffer, size_t count, int type, int peer, comm *c, stream *s) {
  return operate(0, buffer, count, type, peer, c, s);
}

// What vLLM's wrapper looks up and its P2pNccl never calls.
int ncclAllReduce(void) { return INVALID_USAGE; }
int ncclReduce(void) { return INVALID_USAGE; }
int ncclAllGather(void) { return INVALID_USAGE; }
int ncclReduceScatter(void) { return INVALID_USAGE; }
int ncclBroadcast(void) { return INVALID_USAGE; }
int ncclCommWindowRegister(void) { return INVALID_USAGE; }
int ncclCommWindowDeregister(void) { return INVALID_USAGE; }

static void release(comm *c) {  // under the lock
  while (c->running) pthread_cond_wait(&changed, &lock);
  for (int i = 0; i < MOST; i++) if (comms[i] == c) comms[i] = NULL;
  counts[LIVE_COMMS]--;
  c->of->rank[c->rank] = NULL;
  if (c->of->across) {
    if (c->of->connection >= 0) close(c->of->connection);
    if (c->of->listener >= 0) close(c->of->listener);
    c->of->connection = c->of->listener = -1;
  }
  if (c->pending) { free(c->pending->list); free(c->pending); }
  free(c);
}

int ncclCommFinalize(comm *c) {
  pthread_mutex_lock(&lock);
  int ok = fit(c, "finalize");
  if (ok) { c->finalizing = 1; c->in_progress = 1; }
  pthread_mutex_unlock(&lock);
  return ok ? IN_PROGRESS : INVALID_ARGUMENT;
}

int ncclCommDestroy(comm *c) {
  pthread_mutex_lock(&lock);
  int ok = fit(c, "destroy");
  if (ok && (!c->finalized || c->running)) wrong("destroy of a communicator that works");
  if (ok) { counts[DESTROYS]++; release(c); }
  pthread_mutex_unlock(&lock);
  return ok ? SUCCESS : INVALID_ARGUMENT;
}

int ncclCommAbort(comm *c) {
  pthread_mutex_lock(&lock);
  if (!live(c)) {
    wrong("abort of a communicator that is none");
    pthread_mutex_unlock(&lock);
    return INVALID_ARGUMENT;
  }
  counts[ABORTS]++;
  c->aborted = 1;
  pthread_cond_broadcast(&changed);
  release(c);
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
