// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/// The state of each request. Only this class changes states. A change that [Change] does not allow
/// throws, which ends the engine; otherwise a request could be in two queues or in none.
///
/// | state | blocks | who moves it on |
/// |---|---|---|
/// | NEW | none | the scheduler thread, when it takes the request in |
/// | WAITING | none | admission, in order of priority, then of arrival |
/// | LOADING | those of its load | the load: it ends, or is given up after its deadline |
/// | READY | those of its load | admission, before any waiting request |
/// | RUNNING | all that it has computed | its tokens, or a preemption |
/// | ENDED | none | final |
///
/// Waiting, ready and running requests are kept in order of [RequestState#priority], the smaller
/// first, so that the last running one is the one to preempt.
///
/// Threading: scheduler thread only.
final class RequestLifecycle {
    /// Where a request is in its life.
    enum Status {
        NEW,
        WAITING,
        LOADING,
        READY,
        RUNNING,
        ENDED
    }

    /// What can happen to a request: the state that it leads to, and those in which it may happen.
    enum Change {
        /// The scheduler thread takes it in.
        ENTER(Status.WAITING, Status.NEW),
        /// It has blocks for a load that takes several steps.
        START_LOAD(Status.LOADING, Status.WAITING),
        /// The load has ended, and the request keeps its blocks.
        END_LOAD(Status.READY, Status.LOADING),
        /// It has the blocks for its next tokens: it takes part in steps.
        RUN(Status.RUNNING, Status.WAITING, Status.READY),
        /// A load that was to be in place within the step is not.
        AWAIT_LOAD(Status.LOADING, Status.RUNNING),
        /// It starts over without blocks, before others of its priority: it was preempted, or its
        /// load failed or was refused.
        RESTART(Status.WAITING, Status.WAITING, Status.LOADING, Status.READY, Status.RUNNING),
        /// It has its outcome.
        END(Status.ENDED, Status.WAITING, Status.LOADING, Status.READY, Status.RUNNING);

        final Status to;
        final Set<Status> from;

        Change(Status to, Status first, Status... more) {
            this.to = to;
            this.from = EnumSet.of(first, more);
        }

        boolean takesBlocks() {
            return this == START_LOAD || this == RUN;
        }
    }

    /// A request's state and its links in the list of that state; changed here alone. Superclass of
    /// [RequestState]: the state then lies in the same object as what each step reads.
    abstract static class Place {
        private Status status = Status.NEW;
        private @Nullable RequestState before;
        private @Nullable RequestState after;
        private boolean countedAsPreempted;

        final Status status() {
            return status;
        }
    }

    private final Map<Status, Queue> queues = new EnumMap<>(Status.class);
    private final Queue waiting = new Queue();
    private final Queue ready = new Queue();
    private final Queue loading = new Queue();
    private final List<RequestState> running = new ArrayList<>();
    private final List<RequestState> runningView = Collections.unmodifiableList(running);
    private int preempted;

    /// How often a waiting request got blocks although a ready one had been there first.
    private int overtakings;

    RequestLifecycle() {
        queues.put(Status.WAITING, waiting);
        queues.put(Status.READY, ready);
        queues.put(Status.LOADING, loading);
    }

    /// Moves a request on.
    ///
    /// @throws IllegalStateException when its state does not allow it
    void change(RequestState request, Change change) {
        var place = place(request);
        if (!change.from.contains(place.status)) {
            throw new IllegalStateException(
                    "request " + request + " is not in a state for " + change);
        }
        if (place.status == Status.WAITING && ready.size > 0 && change.takesBlocks()) {
            overtakings++;
        }
        leave(request, place.status);
        place.status = change.to;
        switch (change.to) {
            case RUNNING -> insertRunning(request);
            case WAITING, READY, LOADING ->
                    queue(change.to).insert(request, change == Change.RESTART);
            case NEW, ENDED -> {}
        }
        if (change.to == Status.WAITING && request.preemptions > 0) {
            place.countedAsPreempted = true;
            preempted++;
        }
    }

    private void leave(RequestState request, Status from) {
        switch (from) {
            case RUNNING -> running.remove(request);
            case WAITING, READY, LOADING -> queue(from).remove(request);
            case NEW, ENDED -> {}
        }
        var place = place(request);
        if (place.countedAsPreempted) {
            place.countedAsPreempted = false;
            preempted--;
        }
    }

    private Queue queue(Status status) {
        var queue = queues.get(status);
        if (queue == null) {
            throw new IllegalStateException("no queue of " + status);
        }
        return queue;
    }

    private void insertRunning(RequestState request) {
        int at = running.size();
        while (at > 0 && running.get(at - 1).priority() > request.priority()) {
            at--;
        }
        running.add(at, request);
    }

    /// In order of priority; a view.
    List<RequestState> running() {
        return runningView;
    }

    @Nullable RequestState firstReady() {
        return ready.first;
    }

    @Nullable RequestState lastReady() {
        return ready.last;
    }

    @Nullable RequestState firstWaiting() {
        return waiting.first;
    }

    /// The one behind a waiting, ready or loading request; ask before the request is moved.
    static @Nullable RequestState next(RequestState request) {
        return place(request).after;
    }

    boolean hasWaiting() {
        return waiting.size + ready.size > 0;
    }

    int waitingCount() {
        return waiting.size + ready.size;
    }

    int readyCount() {
        return ready.size;
    }

    int loadingCount() {
        return loading.size;
    }

    /// Waiting requests that were preempted because blocks ran out.
    int preemptedCount() {
        return preempted;
    }

    /// Blocks of a group that the requests which have some still need for their prompts.
    int promisedBlocks(int blockTokens) {
        int blocks = 0;
        for (var request : running) {
            blocks += missing(request, blockTokens);
        }
        for (var request = ready.first; request != null; request = next(request)) {
            blocks += missing(request, blockTokens);
        }
        for (var request = loading.first; request != null; request = next(request)) {
            blocks += missing(request, blockTokens);
        }
        return blocks;
    }

    private static int missing(RequestState request, int blockTokens) {
        int needed = Math.ceilDiv(request.promptTokenCount() + 1, blockTokens);
        return Math.max(0, needed - request.blocks.count());
    }

    /// Throws when a request whose load is done waited while later ones got blocks: they come as
    /// fast as others end, so it might wait for ever.
    void check() {
        if (overtakings > 0) {
            throw new IllegalStateException(
                    overtakings + " requests were admitted before others whose load was done");
        }
    }

    /// Nanoseconds until the next pending lookup may be repeated; `Long.MAX_VALUE` for none.
    long nextRetry(long now) {
        long next = Long.MAX_VALUE;
        for (var request = waiting.first; request != null; request = next(request)) {
            next = Math.min(next, request.pending.untilRetry(now));
        }
        return next;
    }

    /// The private members of [Place] are reachable only through this type.
    private static Place place(RequestState request) {
        return request;
    }

    /// Requests in order of priority, linked through their [Place].
    private static final class Queue {
        private @Nullable RequestState first;
        private @Nullable RequestState last;
        private int size;

        /// @param ahead before the others of its priority, else behind them
        void insert(RequestState request, boolean ahead) {
            @Nullable RequestState before = null;
            if (ahead) {
                for (var at = first;
                        at != null && at.priority() < request.priority();
                        at = place(at).after) {
                    before = at;
                }
            } else {
                before = last;
                while (before != null && before.priority() > request.priority()) {
                    before = place(before).before;
                }
            }
            var after = before == null ? first : place(before).after;
            place(request).before = before;
            place(request).after = after;
            link(before, request, after);
            size++;
        }

        private void link(
                @Nullable RequestState before, RequestState request, @Nullable RequestState after) {
            if (before == null) {
                first = request;
            } else {
                place(before).after = request;
            }
            if (after == null) {
                last = request;
            } else {
                place(after).before = request;
            }
        }

        void remove(RequestState request) {
            var before = place(request).before;
            var after = place(request).after;
            if (before == null) {
                first = after;
            } else {
                place(before).after = after;
            }
            if (after == null) {
                last = before;
            } else {
                place(after).before = before;
            }
            place(request).before = null;
            place(request).after = null;
            size--;
        }
    }
}
