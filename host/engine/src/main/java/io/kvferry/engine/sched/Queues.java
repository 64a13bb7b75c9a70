// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.sched;

import io.kvferry.engine.sched.RequestState.Status;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/// Where the live requests are; each is in one queue.
///
/// Threading: scheduler thread only.
final class Queues {
    final List<RequestState> running = new ArrayList<>();

    /// Requests that hold blocks and can run: their load is done.
    final Deque<RequestState> ready = new ArrayDeque<>();

    final Deque<RequestState> waiting = new ArrayDeque<>();
    final List<RequestState> loading = new ArrayList<>();

    /// Takes a request out of whatever queue it is in.
    void remove(RequestState request) {
        switch (request.status) {
            case WAITING, PREEMPTED -> {
                if (!waiting.remove(request)) {
                    ready.remove(request);
                }
            }
            case LOADING -> loading.remove(request);
            case RUNNING -> running.remove(request);
            case ENDED -> {}
        }
    }

    List<RequestState> live() {
        var all = new ArrayList<RequestState>(running);
        all.addAll(ready);
        all.addAll(loading);
        all.addAll(waiting);
        return all;
    }

    boolean hasWaiting() {
        return !waiting.isEmpty() || !ready.isEmpty();
    }

    boolean hasRunning() {
        return !running.isEmpty();
    }

    int runningCount() {
        return running.size();
    }

    int loadingCount() {
        return loading.size();
    }

    int waitingCount() {
        return waiting.size() + ready.size();
    }

    int preemptedCount() {
        int count = 0;
        for (var request : waiting) {
            count += request.status == Status.PREEMPTED ? 1 : 0;
        }
        return count;
    }

    /// Blocks of a group that the requests which have some still need for their prompts.
    int promisedBlocks(int blockTokens) {
        int blocks = 0;
        for (var request : running) {
            blocks += missing(request, blockTokens);
        }
        for (var request : ready) {
            blocks += missing(request, blockTokens);
        }
        for (var request : loading) {
            blocks += missing(request, blockTokens);
        }
        return blocks;
    }

    private static int missing(RequestState request, int blockTokens) {
        int needed = Math.ceilDiv(request.promptTokenCount() + 1, blockTokens);
        return Math.max(0, needed - request.blocks.count());
    }

    /// When the next pending lookup may be repeated; `Long.MAX_VALUE` for none.
    long nextRetry(long now) {
        long next = Long.MAX_VALUE;
        for (var request : waiting) {
            if (request.retryAt != 0) {
                next = Math.min(next, Math.max(0, request.retryAt - now));
            }
        }
        return next;
    }
}
