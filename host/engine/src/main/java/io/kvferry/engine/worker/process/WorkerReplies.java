// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker.process;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.wire.WireReader;

import java.io.EOFException;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/// Reads what a worker process sends: answers for the thread that asked, and notifications in
/// between. An unexpected second answer is not read, which blocks only the worker.
///
/// Threading: [#listen] on its own thread, [#expect] on one other. The end of the process wakes a
/// waiting thread.
final class WorkerReplies {
    private final WorkerPipe frames;
    private final Runnable news;
    private final EventSink events;
    private final BlockingQueue<Reply> heard = new ArrayBlockingQueue<>(2);

    private sealed interface Reply {
        record Answer(WorkerPipe.Message frame) implements Reply {}

        record End(Exception cause) implements Reply {}
    }

    /// @param events takes the events of the worker's plugins
    WorkerReplies(WorkerPipe frames, Runnable news, EventSink events) {
        this.events = events;
        this.frames = frames;
        this.news = news;
    }

    /// Reads until the worker ends or sends something invalid.
    void listen() {
        try {
            hear();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void hear() throws InterruptedException {
        while (true) {
            WorkerPipe.Message frame;
            try {
                frame = frames.receive();
            } catch (IOException | KvFerryException e) {
                heard.put(new Reply.End(e));
                news.run(); // the engine finds out, even if it has nothing to do
                return;
            }
            if (frame.kind() == WorkerPipe.NEWS) {
                news.run();
            } else if (frame.kind() == WorkerPipe.EVENT) {
                forward(frame);
            } else {
                heard.put(new Reply.Answer(frame));
            }
        }
    }

    /// Observing never fails data: what cannot be read is an incident.
    private void forward(WorkerPipe.Message frame) {
        TraceEvent event;
        try {
            event = EventCodec.read(frame.reader());
        } catch (RuntimeException e) {
            event =
                    new TraceEvent.Incident(
                            "", "event-unreadable", "worker", Map.of("what", e.toString()));
        }
        events.emit(event);
    }

    /// Waits for the next answer, which has to be of this kind.
    WireReader expect(int kind) throws IOException, InterruptedException {
        return content(kind, heard.take());
    }

    /// As [#expect(int)], but not for ever.
    ///
    /// @throws TimeoutException when there is none in time
    WireReader expect(int kind, Deadline limit)
            throws IOException, InterruptedException, TimeoutException {
        var reply = heard.poll(Math.max(1, limit.remainingNanos()), TimeUnit.NANOSECONDS);
        if (reply == null) {
            throw new TimeoutException("no answer");
        }
        return content(kind, reply);
    }

    private WireReader content(int kind, Reply reply) throws IOException, InterruptedException {
        return switch (reply) {
            case Reply.Answer(var frame) -> WorkerPipe.expect(kind, frame);
            case Reply.End(var cause) -> {
                heard.put(new Reply.End(cause)); // for whoever asks next
                throw ended(cause);
            }
        };
    }

    private static IOException ended(Exception cause) {
        if (cause instanceof KvFerryException coded) {
            throw coded;
        }
        return cause instanceof IOException gone ? gone : new EOFException(cause.toString());
    }
}
