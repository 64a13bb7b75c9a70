// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.http;

import io.kvferry.engine.RequestHandle;
import io.kvferry.engine.RequestHandle.StreamEvent;
import io.kvferry.spi.Deadline;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;

/// The events of all generations of one request, in order of arrival.
///
/// Threading: one thread reads; with several generations, a virtual thread for each waits for its
/// events.
final class GenerationEvents implements AutoCloseable {
    private static final int QUEUE = 256;
    private static final Duration LOOK = Duration.ofSeconds(1);

    private final List<RequestHandle> handles;
    private final BlockingQueue<Indexed> queue = new ArrayBlockingQueue<>(QUEUE);
    private volatile boolean closed;

    /// An event of the `choice`-th generation.
    record Indexed(int choice, StreamEvent event) {}

    GenerationEvents(List<RequestHandle> handles) {
        this.handles = handles;
        if (handles.size() > 1) {
            for (int i = 0; i < handles.size(); i++) {
                int choice = i;
                Thread.ofVirtual().name("kvferry-choice-", 0).start(() -> pump(choice));
            }
        }
    }

    private void pump(int choice) {
        try {
            boolean ended = false;
            while (!ended && !closed) {
                var event = handles.get(choice).next(Deadline.in(LOOK));
                if (event.isPresent()) {
                    ended = event.get() instanceof StreamEvent.Ended;
                    put(new Indexed(choice, event.get()));
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void put(Indexed event) throws InterruptedException {
        while (!closed && !queue.offer(event, LOOK.toMillis(), TimeUnit.MILLISECONDS)) {
            // the reader is slow; its own limits end it
        }
    }

    /// The next event; empty when there is none before the deadline.
    Optional<Indexed> next(Deadline limit) throws InterruptedException {
        if (handles.size() == 1) {
            return handles.getFirst().next(limit).map(event -> new Indexed(0, event));
        }
        return Optional.ofNullable(
                queue.poll(Math.max(0, limit.remainingNanos()), TimeUnit.NANOSECONDS));
    }

    /// No more events will be read.
    @Override
    public void close() {
        closed = true;
    }
}
